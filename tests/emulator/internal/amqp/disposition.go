package amqp

// Outcome is the kind of a delivery state [AMQP-3.4].
type Outcome uint8

// The delivery states, by descriptor.
const (
	NoState  Outcome = 0
	Received Outcome = 0x23
	Accepted Outcome = 0x24
	Rejected Outcome = 0x25
	Released Outcome = 0x26
	Modified Outcome = 0x27
)

// State is a delivery state. Err belongs to Rejected, the last three to Modified.
type State struct {
	Outcome           Outcome
	Err               *Error
	DeliveryFailed    bool
	UndeliverableHere bool
	Annotations       map[string]any
}

func (s *State) append(b []byte) ([]byte, error) {
	switch s.Outcome {
	case NoState:
		return AppendNull(b), nil
	case Rejected:
		if s.Err == nil {
			break
		}
		b, at := beginComposite(b, byte(s.Outcome))
		b, err := appendError(b, s.Err)
		if err != nil {
			return nil, err
		}
		return endCompound(b, at, 1), nil
	case Modified:
		b, at := beginComposite(b, byte(s.Outcome))
		b = AppendBool(b, s.DeliveryFailed)
		b = AppendBool(b, s.UndeliverableHere)
		b = AppendNull(b) // message-annotations
		return endCompound(b, at, 3), nil
	case Received, Accepted, Released:
	}
	return append(b, codeDescribed, codeSmallUlong, byte(s.Outcome), codeList0), nil
}

func (f *fields) state() State {
	v := f.any()
	if v == nil || f.err != nil {
		return State{}
	}
	d, _ := v.(Described)
	code, _ := d.Descriptor.(uint64)
	list, ok := d.Value.([]any)
	if !ok || code < uint64(Received) || code > uint64(Modified) {
		f.err = malformed("delivery state %v is not supported", d.Descriptor)
		return State{}
	}
	s := State{Outcome: Outcome(code)}
	switch s.Outcome {
	case Rejected:
		if len(list) > 0 && list[0] != nil {
			if s.Err, ok = errorFrom(list[0]); !ok {
				f.err = malformed("rejected with an error of type %T", list[0])
			}
		}
	case Modified:
		for i, v := range list {
			switch i {
			case 0:
				s.DeliveryFailed, ok = v.(bool)
			case 1:
				s.UndeliverableHere, ok = v.(bool)
			case 2:
				s.Annotations, ok = StringMap(v), isNames(v)
			}
			if !ok && v != nil {
				f.err = malformed("field %d of the outcome modified is %T", i, v)
			}
		}
	case NoState, Received, Accepted, Released:
	}
	if most := map[Outcome]int{Received: 2, Rejected: 1, Modified: 3}[s.Outcome]; len(list) > most {
		f.err = malformed("%d fields more than the delivery state has", len(list)-most)
	}
	return s
}

// Disposition carries the state of deliveries First to Last [AMQP-2.7.6].
type Disposition struct {
	Receiver bool // the role of the sender of this frame
	First    uint32
	Last     uint32
	Settled  bool
	State    State
}

func (p *Disposition) append(b []byte) ([]byte, error) {
	b, at := beginComposite(b, descDisposition)
	b = AppendBool(b, p.Receiver)
	b = AppendUint(b, p.First)
	b = appendOptUint(b, p.Last, p.Last != p.First)
	b = AppendBool(b, p.Settled)
	b, err := p.State.append(b)
	if err != nil {
		return nil, err
	}
	b = AppendNull(b) // batchable
	return endCompound(b, at, 6), nil
}

func (p *Disposition) decode(f *fields) error {
	var ok bool
	p.Receiver, ok = f.flag()
	f.must(ok, "role")
	p.First, ok = f.uint32()
	f.must(ok, "first")
	if p.Last, ok = f.uint32(); !ok {
		p.Last = p.First
	}
	p.Settled = f.boolean()
	p.State = f.state()
	f.is("batchable", isBool)
	return f.end()
}
