package amqp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Inspected is a frame of a recorded conversation. Fields that are null are left out.
type Inspected struct {
	Name    string
	Channel uint16
	Fields  map[string]any
	Payload []byte
}

// performatives are the names of frames and of their fields, by descriptor.
var performatives = map[uint64][]string{
	descSASLInit:    {"sasl-init", "mechanism", "initial-response", "hostname"},
	descOpen:        {"open", "container-id", "hostname", "max-frame-size", "channel-max", "idle-time-out", "outgoing-locales", "incoming-locales", "offered-capabilities", "desired-capabilities", "properties"},
	descBegin:       {"begin", "remote-channel", "next-outgoing-id", "incoming-window", "outgoing-window", "handle-max", "offered-capabilities", "desired-capabilities", "properties"},
	descAttach:      {"attach", "name", "handle", "role", "snd-settle-mode", "rcv-settle-mode", "source", "target", "unsettled", "incomplete-unsettled", "initial-delivery-count", "max-message-size", "offered-capabilities", "desired-capabilities", "properties"},
	descFlow:        {"flow", "next-incoming-id", "incoming-window", "next-outgoing-id", "outgoing-window", "handle", "delivery-count", "link-credit", "available", "drain", "echo", "properties"},
	descTransfer:    {"transfer", "handle", "delivery-id", "delivery-tag", "message-format", "settled", "more", "rcv-settle-mode", "state", "resume", "aborted", "batchable"},
	descDisposition: {"disposition", "role", "first", "last", "settled", "state", "batchable"},
	descDetach:      {"detach", "handle", "closed", "error"},
	descEnd:         {"end", "error"},
	descClose:       {"close", "error"},
}

// Inspect decodes what one side of a connection has sent since its start. An incomplete last frame,
// heartbeats and protocol headers are left out.
func Inspect(sent []byte) ([]Inspected, error) {
	br := bufio.NewReaderSize(bytes.NewReader(sent), MaxFrameSize)
	var out []Inspected
	for {
		if head, err := br.Peek(len(headerAMQP)); err == nil && bytes.HasPrefix(head, headerAMQP[:4]) {
			_, _ = br.Discard(len(headerAMQP))
			continue
		}
		fr, err := readFrame(br, MaxFrameSize)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return out, nil
		case err != nil:
			return nil, err
		case len(fr.body) == 0:
			continue
		}
		r := NewReader(fr.body)
		v, err := r.Any()
		if err != nil {
			return nil, fmt.Errorf("inspect frame %d: %w", len(out), err)
		}
		d, _ := v.(Described)
		code, _ := d.Descriptor.(uint64)
		list, _ := d.Value.([]any)
		names := performatives[code]
		if len(list) >= max(len(names), 1) {
			return nil, malformed("frame %d has descriptor %v and %d fields", len(out), d.Descriptor, len(list))
		}
		x := Inspected{Name: names[0], Channel: fr.channel, Fields: map[string]any{}, Payload: bytes.Clone(r.buf)}
		for i, f := range list {
			if f != nil {
				x.Fields[names[i+1]] = f
			}
		}
		out = append(out, x)
	}
}

// InspectMessage splits an encoded message into its sections, without interpreting them.
func InspectMessage(b []byte) (sections []Described, err error) {
	r := NewReader(b)
	for r.Len() > 0 {
		v, err := r.Any()
		if err != nil {
			return nil, fmt.Errorf("inspect message: %w", err)
		}
		d, is := v.(Described)
		if !is {
			return nil, malformed("section is %T", v)
		}
		sections = append(sections, d)
	}
	return sections, nil
}
