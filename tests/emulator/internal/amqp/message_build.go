package amqp

import "time"

// Removed, as the value of a property in RewriteBare, takes the property away.
type Removed struct{}

// RewriteBare returns bare with set merged into its application properties. Everything else
// stays byte for byte.
func RewriteBare(bare []byte, set map[string]any) ([]byte, error) {
	m, err := ParseMessage(bare)
	if err != nil {
		return nil, err
	}
	props, err := m.ApplicationProperties()
	if err != nil {
		return nil, err
	}
	if props == nil {
		props = make(map[string]any, len(set))
	}
	for k, v := range set {
		if _, removed := v.(Removed); removed {
			delete(props, k)
		} else {
			props[k] = v
		}
	}
	out := append([]byte(nil), m.propertiesRaw...)
	out = append(out, codeDescribed, codeSmallUlong, sectionApplication)
	if out, err = AppendAny(out, props); err != nil {
		return nil, err
	}
	return append(out, m.body...), nil
}

// AppendHeader appends a header section [AMQP-3.2.1].
func AppendHeader(b []byte, durable bool, priority uint8, ttl time.Duration, deliveryCount uint32) []byte {
	b, at := beginComposite(b, sectionHeader)
	b = AppendBool(b, durable)
	b = AppendUbyte(b, priority)
	if ttl > 0 {
		b = AppendUint(b, uint32(min(ttl.Milliseconds(), 1<<32-1)))
	} else {
		b = AppendNull(b)
	}
	b = AppendBool(b, false) // first-acquirer
	b = AppendUint(b, deliveryCount)
	return endCompound(b, at, 5)
}

// Annotator builds a message-annotations or delivery-annotations section in place.
type Annotator struct {
	b     []byte
	at, n int
}

// BeginAnnotations starts the message annotations [AMQP-3.2.3].
func BeginAnnotations(b []byte) Annotator { return beginSectionMap(b, sectionAnnotations) }

// BeginDeliveryAnnotations starts the delivery annotations [AMQP-3.2.2].
func BeginDeliveryAnnotations(b []byte) Annotator {
	return beginSectionMap(b, sectionDeliveryAnnotations)
}

func beginSectionMap(b []byte, section byte) Annotator {
	b, at := beginCompound(append(b, codeDescribed, codeSmallUlong, section), codeMap32)
	return Annotator{b: b, at: at}
}

// Long adds a long.
func (a *Annotator) Long(key Symbol, v int64) {
	a.b = AppendLong(AppendSymbol(a.b, key), v)
	a.n++
}

// Int adds an int.
func (a *Annotator) Int(key Symbol, v int32) {
	a.b = AppendInt(AppendSymbol(a.b, key), v)
	a.n++
}

// Time adds a timestamp.
func (a *Annotator) Time(key Symbol, t time.Time) {
	a.b = AppendTimestamp(AppendSymbol(a.b, key), t)
	a.n++
}

// String adds a string.
func (a *Annotator) String(key Symbol, s string) {
	a.b = AppendString(AppendSymbol(a.b, key), s)
	a.n++
}

// UUID adds a uuid.
func (a *Annotator) UUID(key Symbol, u UUID) {
	a.b = AppendUUID(AppendSymbol(a.b, key), u)
	a.n++
}

// Any adds a value of any type AppendAny knows.
func (a *Annotator) Any(key Symbol, v any) error {
	b, err := AppendAny(AppendSymbol(a.b, key), v)
	if err != nil {
		return err
	}
	a.b = b
	a.n++
	return nil
}

// End finishes the section and returns the slice.
func (a *Annotator) End() []byte { return endCompound(a.b, a.at, 2*a.n) }

// AppendReply appends a whole message: properties with a correlation id, application
// properties and an amqp-value body. It is the shape of every request's answer.
func AppendReply(b []byte, correlationID any, app map[string]any, value any) ([]byte, error) {
	b, at := beginComposite(b, sectionProperties)
	for range 5 {
		b = AppendNull(b)
	}
	b, err := AppendAny(b, correlationID)
	if err != nil {
		return nil, err
	}
	b = endCompound(b, at, 6)
	b = append(b, codeDescribed, codeSmallUlong, sectionApplication)
	if b, err = AppendAny(b, app); err != nil {
		return nil, err
	}
	b = append(b, codeDescribed, codeSmallUlong, sectionValue)
	return AppendAny(b, value)
}

// WithMessageID returns the immutable part of m with the message id set. Everything else stays
// byte for byte.
func (m *Message) WithMessageID(id string) ([]byte, error) {
	var rest []byte // the fields after the id
	n := 1
	if m.propertiesRaw != nil {
		r := NewReader(m.propertiesRaw)
		if _, err := readSectionCode(r); err != nil {
			return nil, err
		}
		f, err := openList(r)
		if err != nil {
			return nil, err
		}
		if n = max(f.n, 1); f.n > 0 {
			if err := f.r.Skip(); err != nil {
				return nil, err
			}
			rest = f.r.buf
		}
	}
	out, at := beginComposite(make([]byte, 0, len(m.bare)+len(id)+16), sectionProperties)
	out = append(AppendString(out, id), rest...)
	out = endCompound(out, at, n)
	return append(out, m.bare[len(m.propertiesRaw):]...), nil
}
