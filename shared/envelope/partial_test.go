package envelope

import (
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
)

func TestPartialReturnsWhatCanBeRead(t *testing.T) {
	full := map[string]any{propSubject: "order-1", propPosition: "82AB", propOperation: "insert", propVersion: int32(7)}
	for _, test := range []struct {
		name, session string
		properties    map[string]any
		want          Change
	}{
		{"everything but the body", "order-1", full, Change{MessageID: "m", Aggregate: "order-1", Position: "82AB", Operation: Insert, Version: 7}},
		{"the subject, in a session that others share", "bucket-3", full, Change{MessageID: "m", Aggregate: "order-1", Position: "82AB", Operation: Insert, Version: 7}},
		{"a row of a snapshot", "order-1", map[string]any{propSnapshot: "repeat"}, Change{MessageID: "m", Aggregate: "order-1", Row: RowRepeat}},
		{"a row of an unknown kind", "order-1", map[string]any{propSnapshot: "later"}, Change{MessageID: "m", Aggregate: "order-1"}},
		{"wrong types are nothing", "order-1", map[string]any{propSubject: 5, propPosition: 6, propVersion: "seven"}, Change{MessageID: "m", Aggregate: "order-1"}},
		{"the session's aggregate", "order-1", nil, Change{MessageID: "m", Aggregate: "order-1"}},
		{"a session with a name like that of a bucket", "bucket-of-flowers", nil, Change{MessageID: "m", Aggregate: "bucket-of-flowers"}},
		{"a session that others share", Buckets(9).Session("order-1"), nil, Change{MessageID: "m"}},
		{"a session of a long id", SessionID(strings.Repeat("x", 500)), nil, Change{MessageID: "m"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := &azservicebus.ReceivedMessage{MessageID: "m", SessionID: &test.session, ApplicationProperties: test.properties}
			require.Equal(t, test.want, Partial(m))
		})
	}
	require.Equal(t, Change{}, Partial(&azservicebus.ReceivedMessage{}))
}
