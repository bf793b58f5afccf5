package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// performatives are AMQP's by their descriptors' codes [AMQP-2.7].
var performatives = map[uint64]string{
	0x10: "open", 0x11: "begin", 0x12: "attach", 0x13: "flow", 0x14: "transfer", 0x15: "disposition", 0x16: "detach",
	0x17: "end", 0x18: "close",
}

// newAMQPReader reads protocol headers [AMQP-2.2] and frames [AMQP-2.3].
func newAMQPReader() reader {
	return func(r *bufio.Reader, reply bool) ([]byte, Unit, error) {
		u := Unit{Server: ServiceBus, Reply: reply}
		start, err := r.Peek(8)
		if err != nil {
			return nil, Unit{}, err
		}
		size := uint32(8)
		isHeader := bytes.HasPrefix(start, []byte("AMQP"))
		if !isHeader {
			size = binary.BigEndian.Uint32(start)
		}
		if size < 8 || size > maxMessage {
			return nil, Unit{}, fmt.Errorf("read AMQP frame: its size is %d bytes", size)
		}
		frame := make([]byte, size)
		if _, err := io.ReadFull(r, frame); err != nil {
			return nil, Unit{}, err
		}
		u.Bytes, u.Message = len(frame), frame
		if !isHeader {
			u.Name = performative(frame)
		}
		return frame, u, nil
	}
}

// performative returns the name of a frame's performative; empty for an empty frame and for SASL's.
func performative(frame []byte) string {
	offset := int(frame[4]) * 4 // doff counts words [AMQP-2.3.1]
	if offset >= len(frame) || frame[5] != 0 {
		return ""
	}
	switch body := frame[offset:]; {
	case len(body) >= 3 && body[0] == 0 && body[1] == 0x53: // smallulong
		return performatives[uint64(body[2])]
	case len(body) >= 10 && body[0] == 0 && body[1] == 0x80: // ulong
		return performatives[binary.BigEndian.Uint64(body[2:])]
	}
	return ""
}
