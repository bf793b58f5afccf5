package amqp

import "time"

// Descriptors of the performatives [AMQP-2.7].
const (
	descOpen        = 0x10
	descBegin       = 0x11
	descAttach      = 0x12
	descFlow        = 0x13
	descTransfer    = 0x14
	descDisposition = 0x15
	descDetach      = 0x16
	descEnd         = 0x17
	descClose       = 0x18
	descError       = 0x1d
	descSource      = 0x28
	descTarget      = 0x29
	descCoordinator = 0x30 // [AMQP-4.5.1]
)

// Open negotiates connection parameters [AMQP-2.7.1].
type Open struct {
	ContainerID  string
	Hostname     string
	MaxFrameSize uint32        // bytes; 0 means no limit
	ChannelMax   uint16        // highest channel number
	IdleTimeout  time.Duration // whole milliseconds; 0 means none
	Properties   map[Symbol]any
}

func (o *Open) append(b []byte) ([]byte, error) {
	b, at := beginComposite(b, descOpen)
	b = AppendString(b, o.ContainerID)
	b = appendOptString(b, o.Hostname)
	b = AppendUint(b, o.MaxFrameSize)
	b, _ = AppendAny(b, o.ChannelMax)
	b = AppendUint(b, uint32(o.IdleTimeout.Milliseconds()))
	b = AppendNull(AppendNull(b)) // locales
	b = AppendNull(AppendNull(b)) // capabilities
	b, err := appendProperties(b, o.Properties)
	if err != nil {
		return nil, err
	}
	return endCompound(b, at, 10), nil
}

func (o *Open) decode(f *fields) error {
	var ok bool
	o.ContainerID, ok = f.text()
	f.must(ok, "container-id")
	o.Hostname, _ = f.text()
	o.MaxFrameSize, _ = f.uint32()
	if o.ChannelMax, ok = f.uint16(); !ok {
		o.ChannelMax = 65535
	}
	ms, _ := f.uint32()
	o.IdleTimeout = time.Duration(ms) * time.Millisecond
	for _, name := range []string{"outgoing-locales", "incoming-locales", "offered-capabilities", "desired-capabilities"} {
		f.is(name, isSymbols)
	}
	o.Properties = f.symbolMap()
	return f.end()
}

// appendProperties appends null for an empty list.
func appendProperties(b []byte, m map[Symbol]any) ([]byte, error) {
	if len(m) == 0 {
		return AppendNull(b), nil
	}
	return AppendAny(b, m)
}

func appendOptString(b []byte, s string) []byte {
	if s == "" {
		return AppendNull(b)
	}
	return AppendString(b, s)
}

// Begin starts a session [AMQP-2.7.2].
type Begin struct {
	RemoteChannel    uint16
	HasRemoteChannel bool
	NextOutgoingID   uint32
	IncomingWindow   uint32 // transfer frames
	OutgoingWindow   uint32 // transfer frames
	HandleMax        uint32
}

func (p *Begin) append(b []byte) []byte {
	b, at := beginComposite(b, descBegin)
	if p.HasRemoteChannel {
		b, _ = AppendAny(b, p.RemoteChannel)
	} else {
		b = AppendNull(b)
	}
	b = AppendUint(b, p.NextOutgoingID)
	b = AppendUint(b, p.IncomingWindow)
	b = AppendUint(b, p.OutgoingWindow)
	b = AppendUint(b, p.HandleMax)
	b = AppendNull(AppendNull(b)) // capabilities
	b = AppendNull(b)             // properties
	return endCompound(b, at, 8)
}

func (p *Begin) decode(f *fields) error {
	p.RemoteChannel, p.HasRemoteChannel = f.uint16()
	var ok bool
	p.NextOutgoingID, ok = f.uint32()
	f.must(ok, "next-outgoing-id")
	p.IncomingWindow, ok = f.uint32()
	f.must(ok, "incoming-window")
	p.OutgoingWindow, ok = f.uint32()
	f.must(ok, "outgoing-window")
	if p.HandleMax, ok = f.uint32(); !ok {
		p.HandleMax = 1<<32 - 1
	}
	f.is("offered-capabilities", isSymbols)
	f.is("desired-capabilities", isSymbols)
	f.is("properties", isNames)
	return f.end()
}
