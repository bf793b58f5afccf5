package amqp

// Flow updates session windows and link credit [AMQP-2.7.4].
type Flow struct {
	NextIncomingID    uint32
	HasNextIncomingID bool
	IncomingWindow    uint32
	NextOutgoingID    uint32
	OutgoingWindow    uint32
	Handle            uint32
	HasHandle         bool // without a handle the flow is about the session only
	DeliveryCount     uint32
	HasDeliveryCount  bool
	LinkCredit        uint32
	HasLinkCredit     bool
	Drain             bool
	Echo              bool
}

func (p *Flow) append(b []byte) []byte {
	b, at := beginComposite(b, descFlow)
	b = appendOptUint(b, p.NextIncomingID, p.HasNextIncomingID)
	b = AppendUint(b, p.IncomingWindow)
	b = AppendUint(b, p.NextOutgoingID)
	b = AppendUint(b, p.OutgoingWindow)
	b = appendOptUint(b, p.Handle, p.HasHandle)
	b = appendOptUint(b, p.DeliveryCount, p.HasDeliveryCount)
	b = appendOptUint(b, p.LinkCredit, p.HasLinkCredit)
	b = appendOptUint(b, 0, p.HasHandle) // available
	b = AppendBool(b, p.Drain)
	b = AppendBool(b, p.Echo)
	b = AppendNull(b) // properties
	return endCompound(b, at, 11)
}

func (p *Flow) decode(f *fields) error {
	p.NextIncomingID, p.HasNextIncomingID = f.uint32()
	var ok bool
	p.IncomingWindow, ok = f.uint32()
	f.must(ok, "incoming-window")
	p.NextOutgoingID, ok = f.uint32()
	f.must(ok, "next-outgoing-id")
	p.OutgoingWindow, ok = f.uint32()
	f.must(ok, "outgoing-window")
	p.Handle, p.HasHandle = f.uint32()
	p.DeliveryCount, p.HasDeliveryCount = f.uint32()
	p.LinkCredit, p.HasLinkCredit = f.uint32()
	f.is("available", isUint)
	p.Drain = f.boolean()
	p.Echo = f.boolean()
	f.is("properties", isNames)
	return f.end()
}

func appendOptUint(b []byte, v uint32, ok bool) []byte {
	if !ok {
		return AppendNull(b)
	}
	return AppendUint(b, v)
}
