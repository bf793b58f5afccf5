package producer_test

import (
	"context"
	"crypto/rand"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/claim"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
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
	client, err := azservicebus.NewClientFromConnectionString(servicebus.ConnectionString("bus:5672"),
		&azservicebus.ClientOptions{NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			return w.BusNet.DialContext(ctx, "", "")
		}})
	require.NoError(w, err)
	defer func() { _ = client.Close(w.Context()) }()
	receiver, err := client.AcceptSessionForSubscription(w.Context(), world.Topic, world.Subscription, session, nil)
	require.NoError(w, err)
	messages, err := receiver.ReceiveMessages(w.Context(), n, &azservicebus.ReceiveMessagesOptions{TimeAfterFirstMessage: time.Second})
	require.NoError(w, err)
	return messages
}

// failingUploads loses the answers of the first n uploads of claim checks: they were stored, or the
// container was missing.
type failingUploads struct {
	next policy.Transporter

	mu   sync.Mutex // guards everything below
	n    int
	puts []string // paths
}

// paths returns the paths of the uploads so far.
func (f *failingUploads) paths() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.puts)
}

func (f *failingUploads) Do(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/claim-checks/") {
		return f.next.Do(r)
	}
	f.mu.Lock()
	f.puts = append(f.puts, r.URL.Path)
	f.n--
	failing := f.n >= 0
	f.mu.Unlock()
	response, err := f.next.Do(r)
	if !failing || err != nil {
		return response, err
	}
	_ = response.Body.Close()
	return &http.Response{
		StatusCode: http.StatusServiceUnavailable, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: r,
	}, nil
}

// G1, G2, G3: an event too large for a message is published with its body in a blob, in its place
// in the order, despite failures: the upload's answer and the send's acknowledgement are lost, and
// both are repeated.
func TestG1ALargeEventIsPublishedAsAClaimCheck(t *testing.T) {
	for name, size := range map[string]int{"not in a batch": 300 << 10, "by far": 2 << 20} {
		t.Run(name, func(t *testing.T) {
			world.InVirtualTime(t, world.Options{}, func(w *world.World) {
				uploads := &failingUploads{n: 2}
				a := w.StartProducer("a", func(c *producer.Config, o *producer.Options) {
					c.OnOversize = "claimcheck"
					uploads.next = o.Blob.Transport
					o.Blob.Transport = uploads
				})
				w.Leads("a")
				w.Insert("x")
				w.Published()
				w.Bus.LoseAcknowledgements(1)
				document := bigEvent(t, "x", size)
				w.InsertDocument(document)
				w.InsertDocument(bson.D{{Key: "aggregateId", Value: "x"}, {Key: "version", Value: 3}, {Key: "type", Value: "Counted"}})
				w.Eventually("all three are acknowledged", func() bool { return w.Checkpoint().Published == 3 })
				a.End()

				messages := receive(w, "x", 10)
				require.Len(t, messages, 3)
				for n, version := range []int64{1, 2, 3} {
					require.Equal(t, version, messages[n].ApplicationProperties["version"])
				}
				require.Empty(t, messages[1].Body)
				change, err := envelope.Decode(messages[1])
				require.NoError(t, err)
				require.NotNil(t, change.Claim)
				require.NoError(t, claim.NewStore(w.Blobs(), "claim-checks").Get(t.Context(), &change))
				var kept struct {
					Pad []byte `bson:"pad"`
				}
				require.NoError(t, bson.Unmarshal(change.Document(), &kept))
				require.Equal(t, document[3].Value, kept.Pad)
				paths := uploads.paths()
				require.Greater(t, len(paths), 2)
				for _, path := range paths {
					require.Equal(t, paths[0], path, "every attempt has the same name")
				}
			})
		})
	}
}

// G1 and G3: an entity of Premium accepts messages larger than a batch. They are sent alone, in
// their place, and need no claim check.
func TestG1G3ALargeEventIsSentAloneWhereTheEntityTakesIt(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := w.StartProducer("a", func(c *producer.Config, _ *producer.Options) { c.Topic, c.Queue = "", world.SpaciousQueue })
		w.Leads("a")
		w.InsertMany(5, 2)
		w.InsertDocument(bigEvent(t, "large", 2<<20))
		w.InsertMany(5, 2)
		w.Eventually("all are published", func() bool { return w.Bus.Stats(world.SpaciousQueue).Accepted == 11 })
		w.InsertDocument(bigEvent(t, "huge", 5<<20))
		require.ErrorContains(t, a.Failed(), "is larger than the entity accepts")
		require.EqualValues(t, 11, w.Bus.Stats(world.SpaciousQueue).Accepted)
	})
}
