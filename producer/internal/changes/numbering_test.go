package changes

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
)

const (
	sortable = "8263A1B2C3000000012B042C0100296E5A1004"
	opaque   = "AeARBpQ/AAAA"
)

func counting(epoch int64) numbering { return numbering{epoch: epoch, settings: "h"} }

func (n numbering) must(t *testing.T, at checkpoint.Progress, token string) checkpoint.Progress {
	t.Helper()
	_, position, err := n.next(at, token, "insert")
	require.NoError(t, err)
	return checkpoint.Progress{Position: position, Settings: n.settings}
}

func TestSortableTokensAreTheirOwnPositions(t *testing.T) {
	n := counting(3)
	require.Equal(t, sortable, n.must(t, checkpoint.Progress{}, sortable).Position)
	position, err := n.idle(checkpoint.Progress{Position: sortable}, sortable)
	require.NoError(t, err)
	require.Equal(t, sortable, position)
}

// G2 and G3: the same event has the same ordinal under every leader, and later events have larger
// ones.
func TestG2G3OrdinalsGrowAndAreTheSameForEveryLeader(t *testing.T) {
	first := counting(3).must(t, checkpoint.Progress{}, opaque)
	require.Equal(t, "n0000000003.000000000000000001", first.Position)
	require.Greater(t, first.Position, sortable, "a deployment that moves from tokens to ordinals goes forward")

	again := counting(8).must(t, checkpoint.Progress{}, opaque)
	require.Greater(t, again.Position, first.Position, "a new stream's second attempt is a series of its own")

	at := first
	for range 1000 {
		next := counting(3).must(t, at, opaque)
		require.Greater(t, next.Position, at.Position)
		require.Equal(t, next, counting(9).must(t, at, opaque), "another leader from the same checkpoint")
		idle, err := counting(9).idle(next, opaque)
		require.NoError(t, err)
		require.Equal(t, next.Position, idle, "what is no event is not counted")
		at = next
	}
	require.Equal(t, "n0000000003.000000000000001001", at.Position)
	require.Equal(t, "n0000000003.000000000000001002", counting(3).must(t, at, sortable).Position, "once counted, always counted")
}

// After lost history, or a token set by an operator, a series begins that is larger than everything
// before.
func TestG3ANewSeriesIsLargerThanAllBefore(t *testing.T) {
	at := checkpoint.Progress{Position: "n0000000003.000000000000001001", Settings: "h", Published: 7}
	fresh := counting(9).restart(at)
	require.Equal(t, checkpoint.Progress{Position: "n0000000009.000000000000000000", Settings: "h", Published: 7}, fresh)
	require.Greater(t, NewSeries(9), "n0000000008.999999999999999999")

	later := checkpoint.Progress{Position: "n0000000009.000000000000000005", Settings: "h"}
	require.Equal(t, later.Position, counting(9).restart(later).Position, "lost again in the same term: the count goes on")

	tokens := counting(9).restart(checkpoint.Progress{Position: sortable, Published: 7})
	require.Equal(t, checkpoint.Progress{Published: 7}, tokens)
}

// G6: what would silently renumber events is refused.
func TestG6SilentRenumberingIsRefused(t *testing.T) {
	counted := checkpoint.Progress{Position: "n0000000003.000000000000000005", Settings: "h"}
	require.NoError(t, counting(4).check(counted))
	require.NoError(t, counting(4).check(checkpoint.Progress{}))
	require.NoError(t, numbering{settings: "other", unstable: true}.check(checkpoint.Progress{Position: sortable}))
	require.ErrorIs(t, numbering{settings: "other"}.check(counted), ErrSettingsChanged)
	require.ErrorIs(t, numbering{settings: "h", unstable: true}.check(counted), ErrUnstableFilter)

	_, _, err := counting(4).next(checkpoint.Progress{Position: sortable}, opaque, "insert")
	require.ErrorIs(t, err, ErrOtherDeployment)
	_, _, err = numbering{epoch: 4, unstable: true}.next(checkpoint.Progress{}, opaque, "insert")
	require.ErrorIs(t, err, ErrUnstableFilter)
	_, _, err = counting(4).next(checkpoint.Progress{Position: "n0000000003.999999999999999998", Settings: "h"}, opaque, "insert")
	require.NoError(t, err, "the last that fits")
	_, _, err = counting(4).next(checkpoint.Progress{Position: "n0000000003.999999999999999999", Settings: "h"}, opaque, "insert")
	require.Error(t, err)
}

func TestOnlyOrdinalsAreOrdinals(t *testing.T) {
	require.True(t, Counted("n0000000003.000000000000000005"))
	for _, text := range []string{"", sortable, opaque, "n3.5", "n0000000003.000000000000000005x", "n0000000003", "n-000000003.000000000000000005"} {
		require.False(t, Counted(text), text)
	}
}

// G1: while idle, a server of another version may return the last event's token in its own version.
// The position does not go back because of that.
func TestG1AnIdlePositionNeverGoesBack(t *testing.T) {
	const (
		event = "82386D4383000000072B042C0100296E5A1004AD0AD94FA7ED40FD960561E88915159D463C6F7065726174696F6E54797065003C696E736572740046646F63756D656E744B657900463C5F6964003C686F742D32403200000004"
		asV1  = "82386D4383000000072B022C0100296E5A1004AD0AD94FA7ED40FD960561E88915159D463C5F6964003C686F742D324032000004"
		later = "82386D4384000000012B0229296E04"
	)
	at := checkpoint.Progress{Position: event}
	position, err := numbering{}.idle(at, asV1)
	require.NoError(t, err)
	require.Equal(t, event, position)
	position, err = numbering{}.idle(at, later)
	require.NoError(t, err)
	require.Greater(t, position, event)
}
