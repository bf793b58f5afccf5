package apply

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// stuck does not return from events of type "hangs" before end is closed.
type stuck struct {
	counting
	end chan struct{}
}

func (s stuck) Project(e projection.Event) ([]projection.Write, error) {
	if e.Type == "hangs" {
		<-s.end
	}
	return s.counting.Project(e)
}

// G5: an event from which the projection does not return holds up no earlier one of its aggregate,
// which may have been planned and not written.
func TestG5EarlierEventsAreProjectedBesideOneThatHangs(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		p, calls := stuck{end: make(chan struct{})}, &projections{}
		first := &envelope.Change{Aggregate: "a", MessageID: "1", Position: "821", Operation: envelope.Insert}
		second := &envelope.Change{Aggregate: "a", MessageID: "2", Position: "822", Operation: envelope.Insert, Type: "hangs"}

		_, err := calls.project(ctx, p, second)
		require.ErrorIs(t, err, errHangs)
		_, err = calls.project(ctx, p, first)
		require.NoError(t, err)
		_, err = calls.project(ctx, p, second)
		require.ErrorIs(t, err, errHangs, "it has no second call")
		close(p.end)
		virtualtime.Wait()
		writes, err := calls.project(ctx, p, second)
		require.NoError(t, err)
		require.Len(t, writes, 1)
		require.Zero(t, calls.hanging)
	})
}
