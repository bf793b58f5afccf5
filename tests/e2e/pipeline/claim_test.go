package pipeline_test

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/tests/emulator/blob"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// storage is a projector's transport to Blob storage, which can be closed.
type storage struct {
	next   policy.Transporter
	closed atomic.Bool
	asked  atomic.Int64
}

func (s *storage) Do(r *http.Request) (*http.Response, error) {
	s.asked.Add(1)
	if s.closed.Load() {
		return nil, errors.New("storage is away")
	}
	return s.next.Do(r)
}

// project starts a projector; without storage it has no settings for it.
func project(w *world.World, s *storage) *world.Projector {
	w.Helper()
	return w.StartProjector(func(c *projector.Config, o *projector.Options) {
		c.Connections, c.MaxSessions, c.VersionGapWait = 1, 4, 0
		if s != nil {
			c.Blob, c.ClaimContainer = azure.Blob{ConnectionString: blob.ConnectionString(world.BlobHost)}, "claim-checks"
			s.next = w.Blob.Transport()
			o.Blob = world.BlobOptions(s)
		}
		require.NoError(w, c.Validate())
	})
}

// grow commits five events of an aggregate, the third one of 2 MB, and three of another one.
func grow(w *world.World) {
	w.Helper()
	for version := 1; version <= 5; version++ {
		document := anEvent("x", version)
		if version == 3 {
			document[2].Value = "Grown"
			document = append(document, bson.E{Key: "pad", Value: strings.Repeat("x", 2<<20)})
		}
		w.InsertDocument(document)
	}
	for range 3 {
		w.Insert("y")
	}
}

func claiming(w *world.World) *world.Producer {
	w.Helper()
	a := w.StartProducer("a", func(c *producer.Config, _ *producer.Options) { c.OnOversize = "claimcheck" })
	w.Leads("a")
	return a
}

// G1, G2, G3: an event of 2 MB has its effect once, in its place, through both services, although
// acknowledgements of the broker are lost and the projector cannot reach storage for five minutes.
// The outage dead-letters nothing.
func TestG3ALargeEventHasItsEffectOnceAndInOrder(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := claiming(w)
		s := &storage{}
		s.closed.Store(true)
		p := project(w, s)
		w.Bus.LoseAcknowledgements(2)
		grow(w)
		w.Eventually("the other aggregate is there", func() bool { return w.TimelineOf("y").Events == 3 })
		w.Pass(5 * time.Minute)
		require.Greater(t, s.asked.Load(), int64(10))
		require.EqualValues(t, 2, w.TimelineOf("x").Events, "what comes before the large event")
		s.closed.Store(false)
		w.Eventually("everything is there", func() bool { return w.TimelineOf("x").Events >= 5 })
		w.Eventually("everything is completed", func() bool { return w.Bus.Stats(world.SubscriptionPath).Completed == 8 })
		require.Equal(t, map[string]int64{"Counted": 4, "Grown": 1}, w.TimelineOf("x").Types)
		require.Equal(t, "x@5", w.TimelineOf("x").Last)
		require.Zero(t, w.Bus.Stats(world.SubscriptionPath).DeadLettered)
		p.MustEnd()
		a.End()
	})
}

// G1: the bodies of one batch are held one after the other. Together these have more bytes than a
// projector holds at once (64 MiB).
func TestG1ABatchOfMoreLargeEventsThanAreHeldAtOnce(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		const events = 34
		a := claiming(w)
		pad := strings.Repeat("x", 2<<20)
		for n := range events {
			w.InsertDocument(bson.D{{Key: "aggregateId", Value: "x"}, {Key: "version", Value: n + 1}, {Key: "type", Value: "Grown"}, {Key: "pad", Value: pad}})
		}
		w.Eventually("all are published", func() bool { return w.Bus.Stats(world.Topic).Accepted == events })
		a.End()
		p := project(w, &storage{})
		w.Eventually("all are applied", func() bool { return w.TimelineOf("x").Events == events })
		p.MustEnd()
	})
}

// G6: a body that is lost, or differs from the stored one, is poison with its own reason: never
// applied, and never skipped.
func TestG6ALargeEventWhoseBodyIsLostIsPoison(t *testing.T) {
	world.Each(t, world.Options{}, map[string]func(w *world.World, name string){
		"ClaimCheckMissing": func(w *world.World, name string) {
			_, err := w.Blobs().DeleteBlob(w.Context(), "claim-checks", name, nil)
			require.NoError(w, err)
		},
		"ClaimCheckCorrupt": func(w *world.World, name string) {
			client := w.Blobs().ServiceClient().NewContainerClient("claim-checks").NewBlockBlobClient(name)
			_, err := client.Upload(w.Context(), streaming.NopCloser(bytes.NewReader([]byte("something else"))), nil)
			require.NoError(w, err)
		},
	}, func(w *world.World, reason string, spoil func(w *world.World, name string)) {
		a := claiming(w)
		grow(w)
		w.Eventually("all are published", func() bool { return w.Bus.Stats(world.Topic).Accepted == 8 })
		a.End()
		pages := w.Blobs().NewListBlobsFlatPager("claim-checks", nil)
		page, err := pages.NextPage(w.Context())
		require.NoError(w, err)
		require.Len(w, page.Segment.BlobItems, 1)
		spoil(w, *page.Segment.BlobItems[0].Name)

		p := project(w, &storage{})
		w.Eventually("three are dead-lettered", func() bool { return w.Bus.Stats(world.SubscriptionPath).DeadLettered == 3 })
		w.Eventually("the other aggregate is there", func() bool { return w.TimelineOf("y").Events == 3 })
		require.EqualValues(w, 2, w.TimelineOf("x").Events)
		require.Contains(w, p.Log.Text(), reason)
		p.MustEnd()
	})
}

// A projector without the settings of the bodies' storage waits at the first one and logs what to
// set; it refuses nothing.
func TestAProjectorWithoutStorageWaitsAtALargeEvent(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := claiming(w)
		p := project(w, nil)
		grow(w)
		w.Eventually("the other aggregate is there", func() bool { return w.TimelineOf("y").Events == 3 })
		w.Pass(10 * time.Minute)
		require.EqualValues(t, 2, w.TimelineOf("x").Events)
		require.Zero(t, w.Bus.Stats(world.SubscriptionPath).DeadLettered)
		require.Contains(t, p.Log.Text(), "set BLOB_ACCOUNT_URL")
		p.MustEnd()
		p = project(w, &storage{})
		w.Eventually("everything is there", func() bool { return w.TimelineOf("x").Events == 5 })
		p.MustEnd()
		a.End()
	})
}
