package deadletter

import (
	"context"
	"errors"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// Peeker peeks at messages: a receiver of a queue, or a session.
type Peeker interface {
	PeekMessages(ctx context.Context, count int, o *azservicebus.PeekMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}

// ErrIncomplete means that a peek could not continue although messages may remain.
var ErrIncomplete = errors.New("not all messages could be seen")

const (
	page = 250 // messages in one request
	// partitionShift: the upper 16 bits of a sequence number are those of the message's partition,
	// or 0 if the entity has no partitions. A peek begins in the partition of the number that it is
	// given, and need not continue with the next one.
	partitionShift = 48
	// partitions is how many are peeked at least: more than the 16 of a partitioned entity, or the
	// few of a Premium namespace.
	partitions = 32
)

// PeekAll calls f with every message of a queue or session until f returns false. It locks none.
//
// Guaranteed: a message that is present from the beginning to the end is passed once, messages of
// one partition in order of their sequence numbers. A peek that cannot continue is an error, never
// the end. Not guaranteed: an order between partitions; messages that arrive or leave during the
// call.
func PeekAll(ctx context.Context, from Peeker, f func(*azservicebus.ReceivedMessage) bool) error {
	next := make(map[int64]int64) // the number to go on with, by partition
	last := int64(partitions - 1)
	for partition := int64(0); partition <= last; partition++ {
		for {
			start := max(partition<<partitionShift, next[partition])
			messages, err := from.PeekMessages(ctx, page, &azservicebus.PeekMessagesOptions{FromSequenceNumber: &start})
			if err != nil {
				return fmt.Errorf("peek: %w", err)
			}
			here := 0
			for _, m := range messages {
				if m.SequenceNumber == nil {
					return fmt.Errorf("%w: one has no sequence number", ErrIncomplete)
				}
				n := *m.SequenceNumber
				of := n >> partitionShift
				if of == partition {
					here++
				}
				if n < next[of] {
					continue
				}
				next[of], last = n+1, max(last, of)
				if !f(m) {
					return nil
				}
			}
			if here == 0 {
				break
			}
			if next[partition] <= start {
				return fmt.Errorf("%w: those behind number %d do not come", ErrIncomplete, start)
			}
		}
	}
	return nil
}
