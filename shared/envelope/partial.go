package envelope

import (
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// Partial is what can be read of a message that [Decode] refuses: its id, and the stream, the
// aggregate, the position, the operation, the version and the row, each empty if it cannot be read.
// The aggregate is the subject; without a subject it is the session's id, if the session belongs to
// one aggregate and its id is not a hash.
func Partial(m *azservicebus.ReceivedMessage) Change {
	p := properties(m.ApplicationProperties)
	c := Change{
		MessageID: m.MessageID,
		Stream:    strings.TrimPrefix(p.text(propSource), sourceURI),
		Aggregate: p.text(propSubject),
		Position:  p.text(propPosition),
		Operation: Operation(p.text(propOperation)),
		Version:   p.number(propVersion),
	}
	if row := Row(p.text(propSnapshot)); row.Known() {
		c.Row = row
	}
	if c.Aggregate == "" && m.SessionID != nil && namesAggregate(*m.SessionID) {
		c.Aggregate = *m.SessionID
	}
	return c
}

// namesAggregate reports whether a session's id is an aggregate's id, as far as the id itself
// shows.
func namesAggregate(session string) bool {
	bucket, shared := strings.CutPrefix(session, bucketSession)
	return !strings.HasPrefix(session, hashedSession) && (!shared || strings.Trim(bucket, "0123456789") != "")
}
