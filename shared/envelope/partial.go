package envelope

import (
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// Partial is what can be read of a message that [Decode] refuses: its id, and the stream, the aggregate, the position, the operation
// and the version where they can be read, each empty where not. The aggregate is the subject's; without one it is the session's id, where
// that is an aggregate's own and no hash of one.
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
	if c.Aggregate == "" && m.SessionID != nil && namesAggregate(*m.SessionID) {
		c.Aggregate = *m.SessionID
	}
	return c
}

// namesAggregate says whether a session's id is the id of its one aggregate, as far as the id itself tells.
func namesAggregate(session string) bool {
	bucket, shared := strings.CutPrefix(session, bucketSession)
	return !strings.HasPrefix(session, hashedSession) && (!shared || strings.Trim(bucket, "0123456789") != "")
}
