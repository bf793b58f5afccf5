package broker

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A namespace that does not state the size limit of a batch accepts 1 MB, no matter how large its
// messages may be.
func TestBatchCapacityIsStatedOrOneMegabyte(t *testing.T) {
	stated := func(v any) map[string]any { return map[string]any{"com.microsoft:max-message-batch-size": v} }
	for _, c := range []struct {
		properties map[string]any
		message    uint64
		room       uint64
	}{
		{nil, 256 << 10, 256 << 10},
		{nil, 100 << 20, 1 << 20},
		{nil, 0, 1 << 20},
		{stated(uint64(256 << 10)), 1 << 20, 256 << 10},
		{stated(int64(1 << 20)), 100 << 20, 1 << 20},
		{stated(int32(4 << 20)), 100 << 20, 4 << 20},
		{stated(int64(-1)), 100 << 20, 1 << 20},
		{stated("1048576"), 100 << 20, 1 << 20},
	} {
		require.Equal(t, c.room, batchCapacity(c.properties, c.message), "%v %d", c.properties, c.message)
	}
}

// The last message of each session is kept as a proof. It must not keep the batch in which it came.
func TestAnExtractedMessageKeepsNoOtherInMemory(t *testing.T) {
	b := &amqpBatch{messages: [][]byte{[]byte("first"), []byte("second"), []byte("third")}}
	one, size := b.Extract(1)
	require.Equal(t, len("second"), size)
	extracted := one.(*amqpBatch)
	require.Equal(t, b.messages[1:2], extracted.messages)
	require.NotSame(t, &b.messages[1], &extracted.messages[0], "the array of the batch refers to all of its messages")
}
