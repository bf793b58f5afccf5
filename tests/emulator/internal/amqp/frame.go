package amqp

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

const (
	frameHeaderSize = 8
	frameAMQP       = 0
	frameSASL       = 1
	minMaxFrameSize = 512 // [AMQP-2.8.19]
)

// frame is one decoded frame header and its body. The body aliases the reader's buffer and is
// valid until the next read.
type frame struct {
	kind    uint8
	channel uint16
	body    []byte // empty for a heartbeat [AMQP-2.4.5]
}

// readFrame reads one frame [AMQP-2.3.1]. The size is checked against maxSize before a byte of
// the body is read; br's buffer must hold maxSize bytes.
func readFrame(br *bufio.Reader, maxSize uint32) (frame, error) {
	head, err := br.Peek(frameHeaderSize)
	if err != nil {
		if len(head) > 0 && err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	size := binary.BigEndian.Uint32(head)
	if size < frameHeaderSize || size > maxSize {
		return frame{}, malformed("frame of %d bytes, want %d to %d", size, frameHeaderSize, maxSize)
	}
	offset := uint32(head[4]) * 4
	if offset < frameHeaderSize || offset > size {
		return frame{}, malformed("data offset %d in a frame of %d bytes", offset, size)
	}
	whole, err := br.Peek(int(size))
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, fmt.Errorf("read frame body: %w", err)
	}
	fr := frame{kind: whole[5], channel: binary.BigEndian.Uint16(whole[6:]), body: whole[offset:]}
	// Discard of buffered bytes only moves the read position; the slice stays valid until the
	// next read fills the buffer.
	if _, err := br.Discard(int(size)); err != nil {
		return frame{}, fmt.Errorf("read frame: %w", err)
	}
	return fr, nil
}

// beginFrame appends a frame header whose size endFrame fills in; at is where it began.
func beginFrame(b []byte, kind uint8, channel uint16) []byte {
	b = append(b, 0, 0, 0, 0, 2, kind)
	return binary.BigEndian.AppendUint16(b, channel)
}

func endFrame(b []byte, at int) []byte {
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at))
	return b
}

// heartbeat is the empty frame [AMQP-2.4.5].
var heartbeat = []byte{0, 0, 0, 8, 2, 0, 0, 0}
