package wire

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
)

const (
	// maxMessage is the limit of a MongoDB message, and far above an AMQP frame's.
	maxMessage = 48_000_000
	opMsg      = 2013
)

// newMongoReader returns a reader of the messages of one connection, which remembers the command of
// each reply.
func newMongoReader() reader {
	var mu sync.Mutex
	asked := map[uint32]string{} // guarded by mu: commands by request id
	return func(r *bufio.Reader, reply bool) ([]byte, Unit, error) {
		header, err := r.Peek(16)
		if err != nil {
			return nil, Unit{}, err
		}
		size := binary.LittleEndian.Uint32(header)
		if size < 16 || size > maxMessage {
			return nil, Unit{}, fmt.Errorf("read MongoDB message: its size is %d bytes", size)
		}
		id, answers, op := binary.LittleEndian.Uint32(header[4:]), binary.LittleEndian.Uint32(header[8:]), binary.LittleEndian.Uint32(header[12:])
		message := make([]byte, size)
		if _, err := io.ReadFull(r, message); err != nil {
			return nil, Unit{}, err
		}
		u := Unit{Server: Mongo, Reply: reply, Bytes: len(message), Message: message}
		document := body(message, op)
		mu.Lock()
		defer mu.Unlock()
		if !reply {
			u.Name = command(document)
			asked[id] = u.Name
			return message, u, nil
		}
		u.Name = asked[answers]
		delete(asked, answers)
		if u.Name == "getMore" {
			batch, _ := document.Lookup("cursor", "nextBatch").ArrayOK()
			values, _ := batch.Values() // not an array: no changes
			u.Changes = len(values)
		}
		return message, u, nil
	}
}

// body returns the command or reply of an OP_MSG: its section of kind 0, which the drivers put
// first.
func body(message []byte, op uint32) bson.Raw {
	const start = 16 + 4 + 1 // header, flags, kind
	if op != opMsg || len(message) < start+5 || message[start-1] != 0 {
		return nil
	}
	size := int(binary.LittleEndian.Uint32(message[start:]))
	if size < 5 || start+size > len(message) {
		return nil
	}
	return bson.Raw(message[start : start+size])
}

// command returns the name of a command: the key of the first element.
func command(document bson.Raw) string {
	if document == nil {
		return ""
	}
	first, err := document.IndexErr(0)
	if err != nil {
		return ""
	}
	return first.Key()
}
