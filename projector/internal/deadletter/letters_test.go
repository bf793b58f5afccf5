package deadletter

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// of returns a letter of a stream.
func of(stream, messageID, position string) Letter {
	return Letter{MessageID: messageID, Position: position, change: envelope.Change{Stream: stream}}
}

func TestOrder(t *testing.T) {
	for _, test := range []struct {
		name, want string
		letters    []Letter
	}{
		{"by position", "a b c", []Letter{{MessageID: "b", Position: "2"}, {MessageID: "c", Position: "3"}, {MessageID: "a", Position: "1"}}},
		{
			"a letter without a position stays behind what came before", "p x q r y",
			[]Letter{
				{MessageID: "p", Position: "1"}, {MessageID: "x"}, {MessageID: "r", Position: "5"}, {MessageID: "y"}, {MessageID: "q", Position: "3"},
			},
		},
		{"the first one has no position", "x a", []Letter{{MessageID: "x"}, {MessageID: "a", Position: "1"}}},
		{"the same one twice", "a a b", []Letter{{MessageID: "a", Position: "1"}, {MessageID: "b", Position: "2"}, {MessageID: "a", Position: "1"}}},
		{"two streams' as they came", "a X b c Y", []Letter{of("s", "a", "5"), of("t", "X", "1"), of("s", "b", "6"), of("s", "c", "7"), of("t", "Y", "2")}},
		{
			"two streams' as they came, each by position", "a b X Y c",
			[]Letter{of("s", "b", "6"), of("t", "Y", "2"), of("s", "a", "5"), of("s", "c", "7"), of("t", "X", "1")},
		},
		{
			"repeats of one stream move no letter of the other", "X X Y a Y",
			[]Letter{of("t", "X", "1"), of("t", "Y", "2"), of("s", "a", "5"), of("t", "X", "1"), of("t", "Y", "2")},
		},
		{"a letter without a stream stays behind its neighbour", "a X x b", []Letter{of("s", "a", "5"), of("t", "X", "9"), {MessageID: "x"}, of("s", "b", "6")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for i := range test.letters {
				test.letters[i].key.sequence = int64(i)
			}
			order(test.letters)
			var got strings.Builder
			for i, l := range test.letters {
				if i > 0 {
					got.WriteString(" ")
				}
				got.WriteString(l.MessageID)
			}
			require.Equal(t, test.want, got.String())
		})
	}
}
