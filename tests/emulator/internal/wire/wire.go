// Package wire reads and writes MongoDB's messages: bytes to messages and back, without their
// meaning.
//
// OP_MSG is supported in full except for checksums, which are skipped on reading and never sent;
// OP_QUERY and OP_REPLY only as far as a handshake needs them. Compressed messages are refused.
// Lengths are checked before anything is allocated, and no input makes a reader panic.
package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Opcodes.
const (
	OpReply      = 1
	OpQuery      = 2004
	OpCompressed = 2012
	OpMsg        = 2013
)

// Flag bits of OP_MSG.
const (
	ChecksumPresent = 1 << 0
	MoreToCome      = 1 << 1
	ExhaustAllowed  = 1 << 16
)

// MaxMessage is the largest message accepted, in bytes, as hello advertises it.
const MaxMessage = 48_000_000

const headerSize = 16

// ErrMalformed is wrapped by every complaint about a message's form.
var ErrMalformed = errors.New("malformed message")

// Sequence is a kind 1 section: documents sent beside the command.
type Sequence struct {
	Name string
	Docs []bson.Raw
}

// Message is one request. Body and sequences share the buffer of the message.
type Message struct {
	RequestID int32
	OpCode    int32
	Flags     uint32
	Body      bson.Raw
	Sequences []Sequence
	Namespace string // OP_QUERY's collection
}

// Read takes the next message from r. io.EOF means a clean end.
func Read(r io.Reader) (*Message, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	size := int64(binary.LittleEndian.Uint32(header[:]))
	if size < headerSize || size > MaxMessage {
		return nil, fmt.Errorf("%w: length %d", ErrMalformed, size)
	}
	m := &Message{RequestID: int32(binary.LittleEndian.Uint32(header[4:])), OpCode: int32(binary.LittleEndian.Uint32(header[12:]))}
	body := make([]byte, size-headerSize)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, fmt.Errorf("read message body: %w", err)
	}
	switch m.OpCode {
	case OpMsg:
		return m, m.parseMsg(body)
	case OpQuery:
		return m, m.parseQuery(body)
	default:
		return nil, fmt.Errorf("%w: opcode %d is not supported", ErrMalformed, m.OpCode)
	}
}

func (m *Message) parseMsg(b []byte) error {
	if len(b) < 4 {
		return fmt.Errorf("%w: no flags", ErrMalformed)
	}
	m.Flags = binary.LittleEndian.Uint32(b)
	b = b[4:]
	if unknown := m.Flags & 0xFFFF &^ (ChecksumPresent | MoreToCome); unknown != 0 {
		return fmt.Errorf("%w: unknown required flags %#x", ErrMalformed, unknown)
	}
	if m.Flags&ChecksumPresent != 0 {
		if len(b) < 4 {
			return fmt.Errorf("%w: no checksum", ErrMalformed)
		}
		b = b[:len(b)-4]
	}
	for len(b) > 0 {
		kind := b[0]
		b = b[1:]
		var err error
		switch kind {
		case 0:
			if m.Body != nil {
				return fmt.Errorf("%w: two bodies", ErrMalformed)
			}
			m.Body, b, err = cut(b)
		case 1:
			b, err = m.parseSequence(b)
		default:
			err = fmt.Errorf("%w: section kind %d", ErrMalformed, kind)
		}
		if err != nil {
			return err
		}
	}
	if m.Body == nil {
		return fmt.Errorf("%w: no body", ErrMalformed)
	}
	return nil
}

func (m *Message) parseSequence(b []byte) ([]byte, error) {
	if len(b) < 4 {
		return nil, fmt.Errorf("%w: short sequence", ErrMalformed)
	}
	size := int64(binary.LittleEndian.Uint32(b))
	if size < 5 || size > int64(len(b)) {
		return nil, fmt.Errorf("%w: sequence length %d", ErrMalformed, size)
	}
	rest := b[size:]
	b = b[4:size]
	end := bytes.IndexByte(b, 0)
	if end < 0 {
		return nil, fmt.Errorf("%w: sequence without a name", ErrMalformed)
	}
	s := Sequence{Name: string(b[:end])}
	for b = b[end+1:]; len(b) > 0; {
		var doc bson.Raw
		var err error
		if doc, b, err = cut(b); err != nil {
			return nil, err
		}
		s.Docs = append(s.Docs, doc)
	}
	m.Sequences = append(m.Sequences, s)
	return rest, nil
}

func cut(b []byte) (bson.Raw, []byte, error) {
	if len(b) < 5 {
		return nil, nil, fmt.Errorf("%w: short document", ErrMalformed)
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if n < 5 || n > int64(len(b)) || b[n-1] != 0 {
		return nil, nil, fmt.Errorf("%w: document length %d", ErrMalformed, n)
	}
	return bson.Raw(b[:n:n]), b[n:], nil
}

func (m *Message) parseQuery(b []byte) error {
	if len(b) < 4 {
		return fmt.Errorf("%w: short query", ErrMalformed)
	}
	b = b[4:]
	end := bytes.IndexByte(b, 0)
	if end < 0 || len(b) < end+1+8 {
		return fmt.Errorf("%w: short query", ErrMalformed)
	}
	m.Namespace = string(b[:end])
	doc, _, err := cut(b[end+1+8:])
	m.Body = doc
	return err
}

// AppendMsg appends an OP_MSG with one body that body appends.
func AppendMsg(dst []byte, id, responseTo int32, flags uint32, body func([]byte) []byte) []byte {
	start := len(dst)
	dst = appendHeader(dst, id, responseTo, OpMsg)
	dst = binary.LittleEndian.AppendUint32(dst, flags)
	dst = append(dst, 0)
	return finish(body(dst), start)
}

// AppendReply appends an OP_REPLY with one document.
func AppendReply(dst []byte, id, responseTo int32, doc bson.Raw) []byte {
	start := len(dst)
	dst = appendHeader(dst, id, responseTo, OpReply)
	dst = binary.LittleEndian.AppendUint32(dst, 8) // AwaitCapable, which servers always set
	dst = binary.LittleEndian.AppendUint64(dst, 0) // no cursor
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	dst = binary.LittleEndian.AppendUint32(dst, 1)
	return finish(append(dst, doc...), start)
}

func appendHeader(dst []byte, id, responseTo, op int32) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(id))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(responseTo))
	return binary.LittleEndian.AppendUint32(dst, uint32(op))
}

func finish(dst []byte, start int) []byte {
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start))
	return dst
}
