package amqp

import (
	"slices"
	"time"
)

// Section descriptors [AMQP-3.2].
const (
	sectionHeader              = 0x70
	sectionDeliveryAnnotations = 0x71
	sectionAnnotations         = 0x72
	sectionProperties          = 0x73
	sectionApplication         = 0x74
	sectionData                = 0x75
	sectionSequence            = 0x76
	sectionValue               = 0x77
	sectionFooter              = 0x78
)

// Message is an encoded message, split into its sections. The byte slices alias the input; of the
// bare message only what a broker needs is decoded.
type Message struct {
	Durable  bool
	Priority uint8
	TTL      time.Duration // 0 means none

	DeliveryAnnotations map[string]any
	Annotations         map[string]any
	Properties          Properties

	propertiesRaw  []byte // the whole section, descriptor included
	applicationRaw []byte // the map, without descriptor
	body           []byte // the body sections and the footer
	bare           []byte // properties to footer, as sent
	size           int    // of the whole message
	bodyKind       byte
}

// Properties are the fields of the properties section that a broker uses [AMQP-3.2.4].
type Properties struct {
	MessageID      any // nil, string, uint64, UUID or []byte
	To             string
	ReplyTo        string
	CorrelationID  any
	Subject        string
	ContentType    string
	GroupID        string
	HasGroupID     bool
	ReplyToGroupID string
}

// ParseMessage splits b into sections. They must come in the standard's order [AMQP-3.2], except
// for a footer: rhea, JavaScript's client, writes it before the body, and it is moved to its place.
func ParseMessage(b []byte) (*Message, error) { return parseMessage(b, true) }

func parseMessage(b []byte, early bool) (*Message, error) {
	m := &Message{Priority: 4, size: len(b)}
	r := NewReader(b)
	last := byte(0)
	for r.Len() > 0 {
		start := r.buf
		code, err := readSectionCode(r)
		if err != nil {
			return nil, err
		}
		if code < last || code == last && code != sectionData && code != sectionSequence {
			return nil, malformed("message section %#x after %#x", code, last)
		}
		last = code
		value := r.buf
		if err := m.section(code, r); err != nil {
			return nil, err
		}
		whole := start[:len(start)-r.Len()]
		if code == sectionFooter && early && r.Len() > 0 {
			return parseMessage(slices.Concat(b[:len(b)-len(start)], r.buf, whole), false)
		}
		switch code {
		case sectionProperties:
			m.propertiesRaw = whole
		case sectionApplication:
			m.applicationRaw = value[:len(value)-r.Len()]
		case sectionData, sectionSequence, sectionValue, sectionFooter:
			if m.body == nil {
				m.body, m.bodyKind = start, code
			}
		}
		if code >= sectionProperties && m.bare == nil {
			m.bare = start
		}
	}
	return m, nil
}

func readSectionCode(r *Reader) (byte, error) {
	code, err := r.code()
	if err != nil {
		return 0, err
	}
	if code != codeDescribed {
		return 0, malformed("message section starts with %#02x", code)
	}
	d, err := readDescriptor(r)
	if err != nil {
		return 0, err
	}
	if d < sectionHeader || d > sectionFooter {
		return 0, malformed("unknown message section %#x", d)
	}
	return byte(d), nil
}

func (m *Message) section(code byte, r *Reader) error {
	switch code {
	case sectionHeader:
		f, err := openList(r)
		if err != nil {
			return err
		}
		m.Durable = f.boolean()
		if p, ok := f.uint8(); ok {
			m.Priority = p
		}
		ttl, _ := f.uint32()
		m.TTL = time.Duration(ttl) * time.Millisecond
		f.is("first-acquirer", isBool)
		f.is("delivery-count", isUint)
		return f.end()
	case sectionAnnotations, sectionDeliveryAnnotations:
		v, err := r.Any()
		if err != nil || v == nil {
			return err
		}
		into := &m.Annotations
		if code == sectionDeliveryAnnotations {
			into = &m.DeliveryAnnotations
		}
		if *into = StringMap(v); !isNames(v) {
			return malformed("annotations are %T, or one has a name that is no symbol", v)
		}
		return nil
	case sectionProperties:
		return m.Properties.decode(r)
	case sectionData:
		c, err := r.code()
		if err != nil {
			return err
		}
		if c != codeBin8 && c != codeBin32 {
			return malformed("data section holds code %#02x", c)
		}
		_, err = r.body(c)
		return err
	default:
		return r.Skip()
	}
}

// openList opens a list whose descriptor has been read.
func openList(r *Reader) (fields, error) {
	code, err := r.code()
	if err != nil {
		return fields{}, err
	}
	switch code {
	case codeList0, codeList8, codeList32:
	default:
		return fields{}, malformed("want a list, got code %#02x", code)
	}
	in, n, err := r.compound(code)
	return fields{r: in, n: n}, err
}

func (p *Properties) decode(r *Reader) error {
	f, err := openList(r)
	if err != nil {
		return err
	}
	f.is("message-id", func(v any) bool { p.MessageID = v; return isMessageID(v) })
	f.is("user-id", isBinary)
	p.To, _ = f.text()
	p.Subject, _ = f.text()
	p.ReplyTo, _ = f.text()
	f.is("correlation-id", func(v any) bool { p.CorrelationID = v; return isMessageID(v) })
	p.ContentType, _ = f.text()
	f.is("content-encoding", isSymbol)
	f.is("absolute-expiry-time", isTime)
	f.is("creation-time", isTime)
	p.GroupID, p.HasGroupID = f.text()
	f.is("group-sequence", isUint)
	p.ReplyToGroupID, _ = f.text()
	return f.end()
}

// Bare returns the immutable part, properties to footer, as it was sent [AMQP-3.2].
func (m *Message) Bare() []byte { return m.bare }

// HeaderSize returns the size of everything before the body, in bytes.
func (m *Message) HeaderSize() int { return m.size - len(m.body) }

// HasBody reports whether the message has any body section.
func (m *Message) HasBody() bool { return m.body != nil }

// ApplicationProperties decodes the application properties; nil without any.
func (m *Message) ApplicationProperties() (map[string]any, error) {
	if m.applicationRaw == nil {
		return nil, nil
	}
	v, err := NewReader(m.applicationRaw).Any()
	if err != nil || v == nil {
		return nil, err
	}
	out := StringMap(v)
	if !isNames(v) {
		return nil, malformed("application properties are %T, or one has a name that is no string", v)
	}
	return out, nil
}

// Value decodes an amqp-value body; ok is false when the body is of another kind.
func (m *Message) Value() (v any, ok bool, err error) {
	if m.bodyKind != sectionValue {
		return nil, false, nil
	}
	r := NewReader(m.body)
	if _, err = readSectionCode(r); err != nil {
		return nil, false, err
	}
	v, err = r.Any()
	return v, err == nil, err
}

// EachData calls f with the content of every data section in order, until f returns an error.
func (m *Message) EachData(f func([]byte) error) error {
	r := NewReader(m.body)
	for r.Len() > 0 {
		code, err := readSectionCode(r)
		if err != nil {
			return err
		}
		if code != sectionData {
			if code == sectionFooter {
				return nil
			}
			return malformed("body section %#x where data was expected", code)
		}
		c, err := r.code()
		if err != nil {
			return err
		}
		data, err := r.body(c)
		if err != nil {
			return err
		}
		if err := f(data); err != nil {
			return err
		}
	}
	return nil
}
