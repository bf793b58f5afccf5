package deadletter

import (
	"context"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
)

// queue is a broker's: messages by sequence number. A peek does not leave the partition that it
// begins in, unless it is generous.
type queue struct {
	numbers  []int64
	generous bool
	stuck    bool // answers with messages that were seen already
}

func (q queue) PeekMessages(_ context.Context, count int, o *azservicebus.PeekMessagesOptions) (found []*azservicebus.ReceivedMessage, err error) {
	for _, n := range q.numbers {
		same := n>>partitionShift == *o.FromSequenceNumber>>partitionShift
		if (n >= *o.FromSequenceNumber || q.stuck) && (same || q.generous) && len(found) < count {
			found = append(found, &azservicebus.ReceivedMessage{SequenceNumber: &n})
		}
	}
	return found, nil
}

func TestEveryMessageOfEveryPartitionIsSeenOnce(t *testing.T) {
	var numbers []int64
	for _, partition := range []int64{0, 3, 15, 40} {
		for n := range int64(3 * page) {
			numbers = append(numbers, partition<<partitionShift|n)
		}
	}
	for name, q := range map[string]queue{
		"of one partition": {numbers: numbers[:3*page]}, "of several": {numbers: numbers[:9*page]},
		"of several, one after the other": {numbers: numbers, generous: true}, "of none": {},
	} {
		t.Run(name, func(t *testing.T) {
			var seen []int64
			require.NoError(t, PeekAll(t.Context(), q, func(m *azservicebus.ReceivedMessage) bool {
				seen = append(seen, *m.SequenceNumber)
				return true
			}))
			require.Equal(t, q.numbers, seen)
		})
	}
}

func TestG6APeekThatCannotContinueIsAnError(t *testing.T) {
	err := PeekAll(t.Context(), queue{numbers: []int64{1, 2, 3}, stuck: true}, func(*azservicebus.ReceivedMessage) bool { return true })
	require.ErrorIs(t, err, ErrIncomplete)
}
