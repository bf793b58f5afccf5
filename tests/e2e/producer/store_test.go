package producer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/producer/store"
	"github.com/sluice-cdc/sluice/producer/store/storetest"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// checked is a store whose service has problems.
type checked struct {
	storetest.Memory
	problems error
}

func (c *checked) Check(context.Context) error { return c.problems }

func inStore(c *producer.Config, _ *producer.Options) { c.CheckpointStore = "vault" }

// The doctor lets a store examine its service, and rehearses heartbeats in it.
func TestTheDoctorExaminesTheServiceOfAStore(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		vault := &checked{}
		w.Store = func(name string) (store.Store, error) {
			require.Equal(w, "vault", name)
			return vault, nil
		}
		operateWith(w, inStore, "doctor").reports(0,
			`ok +checkpoint store +its service is configured to keep what it acknowledges`, `ok +leadership times +of 100 heartbeats`)
		names, err := vault.List(w.Context(), "")
		require.NoError(t, err)
		require.Empty(t, names, "the scratch checkpoint is removed")

		vault.problems = errors.Join(errors.New("keys are evicted"), errors.New("nothing is on disk"))
		operateWith(w, inStore, "doctor").
			reports(1, `PROBLEM +checkpoint store +keys are evicted\. nothing is on disk\. To fix it: correct the settings`)
	})
}

// dead is the store of a machine that is lost: nothing is written any more.
type dead struct {
	store.Store
	lost *atomic.Bool
}

func (d dead) Put(ctx context.Context, name string, data []byte, tag store.Tag) (store.Tag, error) {
	if d.lost.Load() {
		<-ctx.Done()
		return "", ctx.Err()
	}
	return d.Store.Put(ctx, name, data, tag)
}

// G4: the lease of a lost leader stays in a store for ever, so the operator's commands watch the
// record before they name a leader. After the record and everything else in the store was lost, no
// epoch is used a second time.
func TestG4AStoreWhoseLeaderIsLost(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		v := withVault(w)
		inVault := func(lost *atomic.Bool) adjustment {
			return func(c *producer.Config, o *producer.Options) {
				c.CheckpointStore, c.StartFrom = "vault", "latest"
				o.Store = func(string) (store.Store, error) { return dead{v, lost}, nil }
			}
		}
		var lost, never atomic.Bool
		a := w.StartProducer("a", inVault(&lost))
		w.Eventually("it leads", func() bool { return v.record(w).Epoch > 0 })
		operateWith(w, inStore, "status").succeeds()

		lost.Store(true)
		a.End()
		began := time.Now()
		operateWith(w, inStore, "status").reports(1)
		require.GreaterOrEqual(t, time.Since(began), 4*time.Second, "TAKEOVER_AFTER")

		before := v.record(w).Epoch
		for _, name := range []string{checkpointBlob, checkpointBlob + ".began"} {
			require.NoError(t, v.Delete(w.Context(), name))
		}
		b := w.StartProducer("b", inVault(&never))
		w.Eventually("it leads", func() bool { return v.record(w).Epoch > 0 })
		require.Greater(t, v.record(w).Epoch, before)
		b.End()
	})
}

// small is a store whose objects are limited.
type small struct{ storetest.Memory }

func (s *small) Put(ctx context.Context, name string, data []byte, tag store.Tag) (store.Tag, error) {
	if len(data) > 4<<10 {
		return "", fmt.Errorf("put %s: %d bytes: %w", name, len(data), store.ErrTooLarge)
	}
	return s.Memory.Put(ctx, name, data, tag)
}

// G6: a record that the store cannot hold, because of an event's long _id, stops the stream with
// the event's position. Otherwise every leader would end at its fence, for ever.
func TestG6ARecordThatIsTooLargeForItsStoreStopsTheStream(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		s := &small{}
		w.Store = func(string) (store.Store, error) { return s, nil }
		a := w.StartProducer("a", func(c *producer.Config, _ *producer.Options) {
			c.CheckpointStore, c.StartFrom = "small", "latest"
		})
		w.Eventually("it leads", func() bool { return strings.Count(a.Log.Text(), `"msg":"leading"`) == 1 })
		w.InsertDocument(bson.D{{Key: "_id", Value: strings.Repeat("long", 2000)}, {Key: "aggregateId", Value: "a"}, {Key: "version", Value: 1}})
		require.ErrorContains(t, a.Failed(), "use a store that holds larger objects")
		require.Equal(t, 1, strings.Count(a.Log.Text(), `"msg":"leading"`))
	})
}
