package producer

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/store/storetest"
)

// A leader whose lease was broken takes a request until it notices. Its successor's answer must
// reach the operator nevertheless, who could otherwise make no other request for as long as the
// successor leads.
func TestG6ARequestThatADeposedLeaderTakesAgainIsAnswered(t *testing.T) {
	c := checkpoint.New(new(storetest.Memory), "shop.orders")
	require.NoError(t, c.WriteRequest(t.Context(), checkpoint.Request{ID: "1", Command: checkpoint.RequestPause}, ""))
	deposed, leads := newRequests(c, "deposed", slog.New(slog.DiscardHandler)), newRequests(c, "leads", slog.New(slog.DiscardHandler))
	deposed.exchange(t.Context())
	leads.exchange(t.Context())
	deposed.exchange(t.Context())
	leads.Answer(leads.Waiting(), nil)
	leads.exchange(t.Context())
	leads.exchange(t.Context()) // at once, by run
	answered, tag, err := c.LastRequest(t.Context())
	require.NoError(t, err)
	require.Equal(t, "leads", answered.AnsweredBy)

	require.NoError(t, c.WriteRequest(t.Context(), checkpoint.Request{ID: "2", Command: checkpoint.RequestResume}, tag))
	leads.exchange(t.Context())
	require.Equal(t, "2", leads.Waiting().ID)
	_, tag, err = c.LastRequest(t.Context())
	require.NoError(t, err)
	leads.Answer(leads.Waiting(), nil)
	require.NoError(t, c.WriteRequest(t.Context(), checkpoint.Request{ID: "2", Command: checkpoint.RequestWithdrawn}, tag))
	leads.exchange(t.Context())
	leads.exchange(t.Context())
	withdrawn, _, err := c.LastRequest(t.Context())
	require.NoError(t, err)
	require.Empty(t, withdrawn.AnsweredBy)
}
