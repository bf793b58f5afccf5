package projector_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/terminal"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// G5: a message overtook another one. It waits for the other, and then both are applied in order.
func TestG5VersionGapHeals(t *testing.T) {
	for name, test := range map[string]struct {
		receiver string
		late     time.Duration
	}{
		"in the same batch":                     {"direct", 0},
		"before the wait is over":               {"direct", 20 * time.Second},
		"before the wait is over, with the SDK": {"sdk", 20 * time.Second},
	} {
		eachShapeOf(t, name, func(w *world.World, s shape) {
			s.adjust = func(c *projector.Config) { c.SessionReceiver = test.receiver }
			p := w.StartProjector(s.settings)
			publish(w, event("a", 1, "T"))
			w.Completed(1)
			w.DelayMongo(1, time.Second, "update")
			publish(w, event("a", 2, "T"))
			w.Eventually("it is in hand", func() bool { return w.Bus.Stats(world.SubscriptionPath).Locked > 0 })
			publish(w, event("a", 4, "T"), event("a", 5, "T"))
			w.Pass(test.late)
			publish(w, event("a", 3, "T"), event("a", 6, "T"))
			w.Completed(6)
			p.MustEnd()
			require.Equal(w, 6, s.applied(w, "a"))
			require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Redelivered, "a delivery count rose")
			require.Zero(w, w.Bus.Stats(world.SubscriptionPath).DeadLettered)
		})
	}
}

// The span of an event that waits lasts until the event is applied.
func TestTraceOfAnEventThatWaitsEndsWithItsEffect(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		spans := tracetest.NewSpanRecorder()
		p := w.StartProjector(func(_ *projector.Config, o *projector.Options) {
			o.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
		})
		for _, version := range []int{1, 3, 2} {
			e := event("a", version, "T")
			e.TraceParent = fmt.Sprintf("00-0af7651916cd43dd8448eb211c80319%d-b7ad6b7169203331-01", version)
			publish(w, e)
			w.Pass(5 * time.Second)
		}
		w.Completed(3)
		p.MustEnd()
		processed := 0
		for _, span := range spans.Ended() {
			require.NotEqual(w, codes.Error, span.Status().Code, "%s: %s", span.Name(), span.Status().Description)
			if slices.Contains(span.Attributes(), attribute.String("sluice.outcome", "applied")) {
				processed++
			}
		}
		require.Equal(w, 3, processed)
	})
}

// G5: the missing version does not arrive. The aggregate is parked, with a reason that describes
// how to continue, and no event behind the gap is applied.
func TestG5VersionGapParks(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		p := w.StartProjector(s.settings)
		publish(w, event("a", 5, "T")) // the first version seen is accepted
		w.Completed(1)
		began := time.Now()
		publish(w, event("a", 7, "T"), event("a", 8, "T"))
		publish(w, event("b", 1, "T"), event("b", 2, "T"))
		w.Completed(3)
		require.Less(w, time.Since(began), time.Second, "another aggregate waited")
		deadLettered(w, 2)
		require.GreaterOrEqual(w, time.Since(began), 30*time.Second)
		require.Less(w, time.Since(began), 35*time.Second)
		p.MustEnd()
		require.Equal(w, []string{"a/7 VersionGap", "a/8 AggregateParked"}, deadLetters(w))
		require.Equal(w, 1, s.applied(w, "a"))
		record := parked(w, s.guards, "a")
		require.Contains(w, record.Description, "the event has version 7, and the last one applied has 5")
		require.Contains(w, record.Description, "VERSION_GAP_WAIT=0")
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Redelivered, "a delivery count rose")
	})
}

// G5: the missing version arrives after its aggregate was parked for it, and is set aside with the
// rest. A replay puts it in its place; a version that never arrives can be dropped.
func TestG5ReplayClosesAVersionGap(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		w.StartProjector(s.settings)
		publish(w, event("a", 1, "T"), event("a", 4, "T"))
		publish(w, event("b", 1, "T"), event("b", 3, "T"))
		deadLettered(w, 2)
		still := exits(w, 1, operate(w, s, "parked", "replay", "a"))
		require.Contains(w, still.Out, "it stays parked: VersionGap: ")
		require.Contains(w, still.Out, "(message "+terminal.Shorten(messageID(event("a", 4, "")))+", at position "+terminal.Shorten(event("a", 4, "").Position)+")")
		publish(w, event("a", 3, "T"))
		publish(w, event("a", 2, "T"))
		deadLettered(w, 4)
		require.Equal(w, 0, operate(w, s, "parked", "replay", "a").Code)
		requireRight(w, s, "a", 4)

		require.Equal(w, 0, operate(w, s, "parked", "drop", "b", "--yes").Code)
		require.Equal(w, 2, s.applied(w, "b"), "the event behind the gap is no poison")
		require.Empty(w, deadLetters(w))
	})
}

// The events of a source whose versions leave numbers out are applied as they arrive.
func TestProjectorWithoutJudgingVersions(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		s.adjust = func(c *projector.Config) { c.VersionGapWait = 0 }
		p := w.StartProjector(s.settings)
		publish(w, event("a", 10, "T"), event("a", 20, "T"))
		publish(w, event("a", 45, "T"))
		w.Completed(3)
		p.MustEnd()
		require.Equal(w, 3, s.applied(w, "a"))
	})
}

// latest keeps the document of an aggregate's last change.
var latest = keeps("latest", func(e projection.Event) projection.Write {
	return projection.Replace("latest", e.Aggregate, e.Document())
})

// G6: a change that counts no version, and replaces the document that contains the guard, keeps the
// version in the guard: a missing version is noticed afterwards.
func TestG6AReplacementForgetsNoVersion(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		p := w.StartProjector(runs(latest))
		publish(w, event("a", 1, "T"))
		w.Completed(1)
		touched := event("a", 2, "$touched")
		touched.Operation = envelope.Update
		publish(w, touched)
		w.Completed(2)
		require.Equal(w, `{"_id":"a","aggregateId":"a","version":2,"type":"$touched","occurredAt":"2026-01-01T00:00:02Z",`+
			`"_sluice":{"version":1,"first":1,"position":"820000000000000000000002","epoch":1,"stream":"shop.events"}}`, inJSON(w, "latest", "a"))

		publish(w, event("a", 3, "T")) // the second version is missing
		deadLettered(w, 1)
		p.MustEnd()
		require.Equal(w, []string{"a/3 VersionGap"}, deadLetters(w))
	})
}
