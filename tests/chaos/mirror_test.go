package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sys/unix"

	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// TestG1G2G3MirrorsOfDocumentsThatChange kills or stops both services of a pipeline at once, again
// and again, while documents are inserted, updated, replaced, deleted and inserted again. After
// every round the mirror equals its source, byte for byte, and it never went back in between.
// CHAOS_ROUNDS, CHAOS_RINGS and CHAOS_STOP are as in the other rounds.
func TestG1G2G3MirrorsOfDocumentsThatChange(t *testing.T) {
	t.Parallel()
	rounds, rings := setting(t, "CHAOS_ROUNDS", 6), setting(t, "CHAOS_RINGS", len(readings))
	stopped := time.Duration(setting(t, "CHAOS_STOP", 5)) * time.Second
	built := programs(t)

	due := make(chan struct{}, rounds)
	for range rounds {
		due <- struct{}{}
	}
	close(due)
	seen := &report{}
	t.Cleanup(func() { t.Logf("%d rounds: %s", rounds, seen.counts()) })
	for n := range min(rings, rounds) {
		read := readings[n%len(readings)]
		name := fmt.Sprintf("mirror-%d", n+1)
		t.Run(read.name, func(t *testing.T) {
			t.Parallel()
			o := ringOptions{
				name: name, seed: uint64(setting(t, "CHAOS_SEED", 1)*100 + n), rate: 40, documents: &read,
				services: built, times: quick,
			}
			random := rand.New(rand.NewPCG(o.seed, 0xb07))
			r := inRing(t, o, func(ctx context.Context, r *ring) error {
				for range due {
					if err := r.takeBoth(ctx, random, stopped); err != nil {
						return err
					}
					if err := r.judge(ctx); err != nil {
						return err
					}
				}
				return nil
			})
			seen.judged(r)
		})
	}
}

// takeBoth kills the leader and projectors at the same moment, and waits until others have taken
// over. One leader of three is stopped instead, and continues later as if nothing had happened.
func (r *ring) takeBoth(ctx context.Context, random *rand.Rand, stopped time.Duration) error {
	leader, err := r.ready(ctx)
	if err != nil {
		return err
	}
	// This hits any moment of a heartbeat.
	if err := retry.Sleep(ctx, time.Duration(random.Int64N(int64(time.Second)))); err != nil {
		return err
	}
	epoch, at := r.checkpoints.Epoch(), time.Now()
	victims := []*slot{leader, r.projectors[random.IntN(len(r.projectors))]}
	switch random.IntN(3) {
	case 0:
		victims = append([]*slot{leader}, r.projectors...)
	case 1:
		victims = r.slots()
	}
	of := syscall.SIGKILL
	if random.IntN(3) == 0 && len(victims) < len(r.slots()) {
		of = syscall.SIGSTOP
	}
	for _, victim := range victims {
		signal := syscall.SIGKILL
		if victim == leader {
			signal = of
		}
		instance, err := victim.Signal(signal)
		if err != nil && !errors.Is(err, os.ErrProcessDone) { // the slot is about to start a new one
			return err
		}
		r.trace.add("%s to %s, epoch %d", unix.SignalName(signal), instance, epoch)
	}
	_, err = r.replaced(ctx, epoch)
	if of == syscall.SIGSTOP {
		err = errors.Join(err, retry.Sleep(ctx, stopped-time.Since(at)), r.wake(leader))
	}
	return err
}

// The judge of mirrors notices each kind of difference; otherwise the rounds above would prove
// nothing.
func TestTheJudgeNoticesAWrongMirror(t *testing.T) {
	t.Parallel()
	servers := emulator.Start(t, emulator.Options{})
	client, err := driver.Connect(options.Client().ApplyURI(servers.Endpoint(emulator.EnvMongo)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.WithoutCancel(t.Context()))) })
	d, err := newDocuments(t.Context(), client, ringOptions{documents: &readings[0], seed: 1}, history.NewRecorder())
	require.NoError(t, err)
	all := ids()
	for n := range 400 {
		require.NoError(t, d.write(t.Context(), all[n%len(all)]))
	}
	cursor, err := d.source.Find(t.Context(), bson.D{})
	require.NoError(t, err)
	var copied []bson.Raw
	require.NoError(t, cursor.All(t.Context(), &copied))
	require.Greater(t, len(copied), 3)
	_, err = d.mirror.InsertMany(t.Context(), copied)
	require.NoError(t, err)
	differences := func() []string {
		found, err := d.differences(t.Context())
		require.NoError(t, err)
		return found
	}
	require.Empty(t, differences())

	var first bson.D
	require.NoError(t, bson.Unmarshal(copied[0], &first))
	slices.Reverse(first[1:])
	_, err = d.mirror.ReplaceOne(t.Context(), first[:1], first)
	require.NoError(t, err)
	require.Len(t, differences(), 1, "a different order of fields")
	_, err = d.mirror.DeleteOne(t.Context(), bson.D{{Key: "_id", Value: copied[1].Lookup("_id")}})
	require.NoError(t, err)
	_, err = d.mirror.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "stranger"}})
	require.NoError(t, err)
	require.Len(t, differences(), 3)

	shown := func(operation string, revision int64) {
		change, err := bson.Marshal(bson.D{
			{Key: "operationType", Value: operation},
			{Key: "documentKey", Value: bson.D{{Key: "_id", Value: 17}}},
			{Key: "fullDocument", Value: bson.D{{Key: "revision", Value: revision}}},
		})
		require.NoError(t, err)
		d.observe(change)
	}
	shown("insert", 1000)
	shown("replace", 1001)
	require.Len(t, differences(), 3)
	shown("replace", 1000)
	require.Len(t, differences(), 4, "the mirror went back")
	d.reading.ahead = true
	shown("replace", 999)
	require.Len(t, differences(), 4, "a document that is looked up may be ahead")
}
