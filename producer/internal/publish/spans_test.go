package publish

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

func TestUntracedEventsCostNothing(t *testing.T) {
	off := newSpans(nil, "changes")
	c := envelope.Change{Stream: "shop.events", Token: "82", TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	items := []*item{{}, {}, {}}
	ctx := t.Context()
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		items[0].span = off.published(ctx, &c)
		off.sent(off.sending(ctx, items), nil)
		off.acknowledged(items)
		off.abandon(nil)
	}))
	require.NotEmpty(t, c.TraceParent, "the message carries the trace of the event")
}
