package amqp

// Transfer carries a message or a part of one [AMQP-2.7.5].
type Transfer struct {
	Handle           uint32
	DeliveryID       uint32
	HasDeliveryID    bool
	Tag              []byte
	MessageFormat    uint32
	HasMessageFormat bool
	Settled          bool
	More             bool
	Aborted          bool
	Resume           bool
}

// transferOverhead is more than the frame header and a transfer performative with a tag of up
// to 32 bytes take.
const transferOverhead = 96

func (p *Transfer) append(b []byte) []byte {
	b, at := beginComposite(b, descTransfer)
	b = AppendUint(b, p.Handle)
	b = appendOptUint(b, p.DeliveryID, p.HasDeliveryID)
	if p.HasDeliveryID {
		b = AppendBinary(b, p.Tag)
	} else {
		b = AppendNull(b)
	}
	b = appendOptUint(b, p.MessageFormat, p.HasMessageFormat)
	if p.Settled {
		b = AppendBool(b, true)
	} else {
		b = AppendNull(b)
	}
	b = AppendBool(b, p.More)
	b = AppendNull(b) // rcv-settle-mode: the link's applies
	b = AppendNull(b) // state: only of use on resumption
	b = AppendBool(b, p.Resume)
	b = AppendBool(b, p.Aborted)
	b = AppendBool(b, true) // batchable
	return endCompound(b, at, 11)
}

func (p *Transfer) decode(f *fields) error {
	var ok bool
	p.Handle, ok = f.uint32()
	f.must(ok, "handle")
	p.DeliveryID, p.HasDeliveryID = f.uint32()
	p.Tag = f.binary()
	p.MessageFormat, p.HasMessageFormat = f.uint32()
	p.Settled = f.boolean()
	p.More = f.boolean()
	mode, _ := f.uint8() // the link's applies
	f.atMost(mode, ReceiverSecond, "rcv-settle-mode")
	if f.any() != nil && f.err == nil { // of use on resumption and in transactions
		f.err = &Error{Condition: CondNotImplemented, Description: "a transfer with a delivery state is not supported by this emulator"}
	}
	p.Resume = f.boolean()
	p.Aborted = f.boolean()
	f.is("batchable", isBool)
	return f.end()
}
