package producer_test

import (
	"crypto/rand"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/claim"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// bigEvent returns an event that is too large for a message.
func bigEvent(t *testing.T, aggregate string, size int) bson.D {
	t.Helper()
	pad := make([]byte, size)
	_, err := rand.Read(pad)
	require.NoError(t, err)
	return bson.D{{Key: "aggregateId", Value: aggregate}, {Key: "version", Value: 2}, {Key: "type", Value: "Grown"}, {Key: "pad", Value: pad}}
}

// receive receives n messages of a session, as a projector does, without settling them.
func receive(w *world.World, session string, n int) []*azservicebus.ReceivedMessage {
	w.Helper()
	receiver, err := w.BusClient.AcceptSessionForSubscription(w.Context(), world.Topic, world.Subscription, session, nil)
	require.NoError(w, err)
	messages, err := receiver.ReceiveMessages(w.Context(), n, &azservicebus.ReceiveMessagesOptions{TimeAfterFirstMessage: time.Second})
	require.NoError(w, err)
	require.NoError(w, receiver.Close(w.Context()))
	return messages
}

// G1, G2, G3: an event too large for a message is published with its body in a blob, in its place
// in the order, despite failures: the upload's answer and the send's acknowledgement are lost, and
// both are repeated.
func TestG1ALargeEventIsPublishedAsAClaimCheck(t *testing.T) {
	for name, size := range map[string]int{"not in a batch": 300 << 10, "by far": 2 << 20} {
		subtest(t, name, world.Options{}, func(w *world.World) {
			// The answers of the first two uploads are lost: the body is stored, or the container
			// was missing.
			paths := make(chan string, 100) // of the uploads
			losing := throughStorage(func(r *http.Request, next policy.Transporter) (*http.Response, error) {
				if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/claim-checks/") {
					return next.Do(r)
				}
				paths <- r.URL.Path
				lost := len(paths) <= 2
				response, err := next.Do(r)
				if !lost || err != nil {
					return response, err
				}
				_ = response.Body.Close()
				return failure(r, http.StatusServiceUnavailable, ""), nil
			})
			a := startLeader(w, "a", func(c *producer.Config, o *producer.Options) {
				c.OnOversize = "claimcheck"
				losing(c, o)
			})
			w.Insert("x")
			w.Published()
			w.Bus.LoseAcknowledgements(1)
			document := bigEvent(w.T, "x", size)
			w.InsertDocument(document)
			w.InsertDocument(bson.D{{Key: "aggregateId", Value: "x"}, {Key: "version", Value: 3}, {Key: "type", Value: "Counted"}})
			checkpointed(w, 3)
			a.End()

			messages := receive(w, "x", 10)
			require.Len(w, messages, 3)
			for n, version := range []int64{1, 2, 3} {
				require.Equal(w, version, messages[n].ApplicationProperties["version"])
			}
			require.Empty(w, messages[1].Body)
			change, err := envelope.Decode(messages[1])
			require.NoError(w, err)
			require.NotNil(w, change.Claim)
			require.NoError(w, claim.NewStore(w.Blobs(), "claim-checks").Get(w.Context(), &change))
			var kept struct {
				Pad []byte `bson:"pad"`
			}
			require.NoError(w, bson.Unmarshal(change.Document(), &kept))
			require.Equal(w, document[3].Value, kept.Pad)
			require.Greater(w, len(paths), 2)
			for first := <-paths; len(paths) > 0; {
				require.Equal(w, first, <-paths, "every attempt has the same name")
			}
		})
	}
}

// G1 and G3: an entity of Premium accepts messages larger than a batch. They are sent alone, in
// their place, and need no claim check.
func TestG1G3ALargeEventIsSentAloneWhereTheEntityTakesIt(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := startLeader(w, "a", func(c *producer.Config, _ *producer.Options) { c.Topic, c.Queue = "", world.SpaciousQueue })
		w.InsertMany(5, 2)
		w.InsertDocument(bigEvent(t, "large", 2<<20))
		w.InsertMany(5, 2)
		w.Eventually("all are published", func() bool { return w.Bus.Stats(world.SpaciousQueue).Accepted == 11 })
		w.InsertDocument(bigEvent(t, "huge", 5<<20))
		require.ErrorContains(t, a.Failed(), "is larger than the entity accepts")
		require.EqualValues(t, 11, w.Bus.Stats(world.SpaciousQueue).Accepted)
	})
}
