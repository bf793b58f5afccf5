package amqp

import "slices"

// Settlement modes [AMQP-2.8.2], [AMQP-2.8.3].
const (
	SenderUnsettled uint8 = 0
	SenderSettled   uint8 = 1
	SenderMixed     uint8 = 2
	ReceiverFirst   uint8 = 0
	ReceiverSecond  uint8 = 1
)

// Terminus is a source or a target [AMQP-3.5.3], [AMQP-3.5.4]. Its fields are kept as they
// came, so that a reply can echo what it does not change.
type Terminus struct {
	Descriptor uint64
	Fields     []any
}

const filterField = 7 // of a source

// Address returns the address, or "" if it is absent or not a string.
func (t *Terminus) Address() string {
	if t == nil || len(t.Fields) == 0 {
		return ""
	}
	s, _ := t.Fields[0].(string)
	return s
}

// Filter returns the named filter's value, without its descriptor, and whether it is present. A
// filter is recognised by its descriptor: one that is described by anything but its name or code is
// another filter, whatever key it has. A bare value is recognised by its key.
func (t *Terminus) Filter(name Symbol, code uint64) (any, bool) {
	if t == nil || len(t.Fields) <= filterField {
		return nil, false
	}
	m, _ := t.Fields[filterField].(map[any]any)
	v, ok := m[name]
	if !ok {
		v, ok = m[string(name)]
	}
	if d, described := v.(Described); described {
		if d.Descriptor != code && d.Descriptor != name {
			return nil, false
		}
		v = d.Value
	}
	return v, ok
}

// FilterNames returns the names of all filters asked for.
func (t *Terminus) FilterNames() []string {
	if t == nil || len(t.Fields) <= filterField {
		return nil
	}
	var names []string
	for k := range StringMap(t.Fields[filterField]) {
		names = append(names, k)
	}
	return names
}

// WithFilter returns a copy whose only filter is the given one, in the form in which the client
// sent it: some clients describe the value, others send it bare and compare what comes back with
// that.
func (t *Terminus) WithFilter(name Symbol, value any) *Terminus {
	out := &Terminus{Descriptor: t.Descriptor, Fields: make([]any, max(len(t.Fields), filterField+1))}
	copy(out.Fields, t.Fields)
	m, _ := out.Fields[filterField].(map[any]any)
	key := any(name)
	asked, ok := m[key]
	if v, named := m[string(name)]; !ok && named {
		key, asked = string(name), v
	}
	if d, described := asked.(Described); described {
		value = Described{Descriptor: d.Descriptor, Value: value}
	}
	out.Fields[filterField] = map[any]any{key: value}
	return out
}

func (t *Terminus) append(b []byte) ([]byte, error) {
	if t == nil {
		return AppendNull(b), nil
	}
	return AppendAny(b, Described{Descriptor: t.Descriptor, Value: t.Fields})
}

func (f *fields) terminus(want ...uint64) *Terminus {
	v := f.any()
	if v == nil || f.err != nil {
		return nil
	}
	d, ok := v.(Described)
	if !ok {
		f.err = malformed("terminus is %T", v)
		return nil
	}
	code, _ := d.Descriptor.(uint64)
	list, ok := d.Value.([]any)
	if !slices.Contains(want, code) || !ok {
		f.err = malformed("terminus with descriptor %v is not supported", d.Descriptor)
		return nil
	}
	t := &Terminus{Descriptor: code, Fields: list}
	f.err = t.fault()
	return t
}

// unsupported returns an error for a feature that an attach requests and that is not provided, or
// nil.
func (p *Attach) unsupported() *Error {
	switch {
	case p.Target != nil && p.Target.Descriptor == descCoordinator:
		return &Error{Condition: CondNotImplemented, Description: "transactions are not supported by this emulator"}
	case p.Resumes:
		return &Error{Condition: CondNotImplemented, Description: "resuming a link is not supported by this emulator"}
	case p.Source.dynamic(), p.Target.dynamic():
		return &Error{Condition: CondNotImplemented, Description: "dynamic nodes are not supported by this emulator"}
	case p.Source.copies():
		return &Error{Condition: CondNotImplemented, Description: "browsing by a link is not supported by this emulator"}
	}
	return nil
}

// terse names the fields of an attach that are left out.
type terse struct{ senderSettleMode, receiverSettleMode, deliveryCount bool }

// Attach opens a link [AMQP-2.7.3].
type Attach struct {
	Name                 string
	Handle               uint32
	Receiver             bool // the role of the sender of this frame
	SenderSettleMode     uint8
	ReceiverSettleMode   uint8
	Source               *Terminus
	Target               *Terminus
	Resumes              bool // it names deliveries of an earlier link
	InitialDeliveryCount uint32
	MaxMessageSize       uint64 // bytes; 0 means no limit
	Properties           map[Symbol]any
	terse                terse
}

func (p *Attach) append(b []byte) ([]byte, error) {
	b, at := beginComposite(b, descAttach)
	b = AppendString(b, p.Name)
	b = AppendUint(b, p.Handle)
	b = AppendBool(b, p.Receiver)
	b = appendOptUbyte(b, p.SenderSettleMode, !p.terse.senderSettleMode)
	b = appendOptUbyte(b, p.ReceiverSettleMode, !p.terse.receiverSettleMode)
	b, err := p.Source.append(b)
	if err != nil {
		return nil, err
	}
	if b, err = p.Target.append(b); err != nil {
		return nil, err
	}
	if p.Resumes { // only clients do, and only in tests
		if b, err = AppendAny(b, map[any]any{Symbol("tag"): nil}); err != nil {
			return nil, err
		}
	} else {
		b = AppendNull(b) // unsettled
	}
	b = AppendNull(b) // incomplete-unsettled
	// Mandatory for a sender, although the service was seen to leave it out.
	b = appendOptUint(b, p.InitialDeliveryCount, !p.Receiver && !p.terse.deliveryCount)
	b = AppendUlong(b, p.MaxMessageSize)
	b = AppendNull(AppendNull(b)) // capabilities
	if b, err = appendProperties(b, p.Properties); err != nil {
		return nil, err
	}
	return endCompound(b, at, 14), nil
}

func (p *Attach) decode(f *fields) error {
	var ok bool
	p.Name, ok = f.text()
	f.must(ok, "name")
	p.Handle, ok = f.uint32()
	f.must(ok, "handle")
	p.Receiver, ok = f.flag()
	f.must(ok, "role")
	if p.SenderSettleMode, ok = f.uint8(); !ok {
		p.SenderSettleMode, p.terse.senderSettleMode = SenderMixed, true
	}
	f.atMost(p.SenderSettleMode, SenderMixed, "snd-settle-mode")
	p.ReceiverSettleMode, ok = f.uint8()
	f.atMost(p.ReceiverSettleMode, ReceiverSecond, "rcv-settle-mode")
	p.terse.receiverSettleMode = !ok
	p.Source = f.terminus(descSource)
	p.Target = f.terminus(descTarget, descCoordinator)
	f.is("unsettled", func(v any) bool {
		unsettled, ok := v.(map[any]any)
		p.Resumes = len(unsettled) > 0
		return ok
	})
	f.is("incomplete-unsettled", isBool)
	p.InitialDeliveryCount, _ = f.uint32()
	p.MaxMessageSize, _ = f.uint64()
	f.is("offered-capabilities", isSymbols)
	f.is("desired-capabilities", isSymbols)
	p.Properties = f.symbolMap()
	return f.end()
}

func appendOptUbyte(b []byte, v uint8, ok bool) []byte {
	if !ok {
		return AppendNull(b)
	}
	return AppendUbyte(b, v)
}
