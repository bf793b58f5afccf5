package projector_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	mongoevent "go.mongodb.org/mongo-driver/v2/event"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// G1: a message is completed only after a write that no election can roll back, whatever write
// concern the connection string has: by one update, or by the commit of a transaction, which the
// driver gives the client's write concern.
func TestG1EffectsAreMajorityCommittedDespiteTheURI(t *testing.T) {
	for _, test := range []struct {
		projection, commits string
		message             func(w *world.World)
	}{
		{"timeline", "update", func(w *world.World) { publish(w, event("a", 1, "T")) }},
		{"mirror", "commitTransaction", func(w *world.World) { publish(w, documentChange("a", 1, envelope.Insert, full("a"))) }},
	} {
		subtest(t, test.projection, func(w *world.World) {
			var mu sync.Mutex
			var concerns []string // guarded by mu
			monitor := &mongoevent.CommandMonitor{Started: func(_ context.Context, e *mongoevent.CommandStartedEvent) {
				if e.CommandName == test.commits {
					mu.Lock()
					defer mu.Unlock()
					concerns = append(concerns, e.Command.Lookup("writeConcern").String())
				}
			}}
			p := w.StartProjector(monitored(func(c *projector.Config, _ *projector.Options) {
				c.MongoURI += "&w=1&readConcernLevel=local"
				c.Projection = test.projection
			}, monitor))
			test.message(w)
			w.Completed(1)
			p.MustEnd()
			mu.Lock()
			defer mu.Unlock()
			require.Equal(w, []string{`{"w": "majority"}`}, concerns)
		})
	}
}
