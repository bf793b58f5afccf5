package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// store returns its answers in turn, one for each request, and repeats the last one.
type store struct {
	mu       sync.Mutex
	answers  []error
	requests int
}

func (s *store) Get(_ context.Context, c *envelope.Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.answers[min(s.requests, len(s.answers)-1)]
	s.requests++
	if err == nil {
		c.Claim = nil
	}
	return err
}

func claimed(size int64) *envelope.Change {
	return &envelope.Change{Claim: &envelope.Claim{Blob: "b", Size: size}}
}

var errAway = errors.New("storage is away")

// G6: an outage of storage, however long, refuses nothing.
func TestG6UnavailableStorageIsWaitedFor(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		s := &store{}
		for range 1000 {
			s.answers = append(s.answers, errAway)
		}
		s.answers = append(s.answers, nil)
		d := newRedeemer(s, slog.New(slog.DiscardHandler))
		c := claimed(10)
		done, err := d.redeem(t.Context(), c)
		defer done()
		require.NoError(t, err)
		require.Nil(t, c.Claim)
		require.Equal(t, 1001, s.requests)
		require.NoError(t, d.outage.Err())
	})
}

func TestABodyThatIsGoneIsFinal(t *testing.T) {
	s := &store{answers: []error{errAway, &envelope.Error{Reason: envelope.ReasonClaimMissing}}}
	d := newRedeemer(s, slog.New(slog.DiscardHandler))
	done, err := d.redeem(t.Context(), claimed(10))
	defer done()
	refusal, ok := errors.AsType[*envelope.Error](err)
	require.True(t, ok)
	require.Equal(t, envelope.ReasonClaimMissing, refusal.Reason)
	require.Equal(t, 2, s.requests)
}

// Without storage configured nothing is refused either: the setting is wrong, and not the message.
func TestWithoutStorageItWaitsAndNamesTheSettings(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		d := newRedeemer(nil, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		done, err := d.redeem(ctx, claimed(10))
		done()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, final := errors.AsType[*envelope.Error](err)
		require.False(t, final)
		require.ErrorContains(t, d.outage.Err(), "BLOB_ACCOUNT_URL")
	})
}

// The bodies that are held at once are bounded by their bytes; one that exceeds the bound is held
// on its own.
func TestHeldBytesAreBounded(t *testing.T) {
	for _, test := range []struct {
		size int64
		held int
	}{{maxBodyBytes / 4, 4}, {maxBodyBytes/4 + 1, 3}, {maxBodyBytes * 2, 1}} {
		virtualtime.Test(t, func(t *testing.T) {
			d := newRedeemer(&store{answers: []error{nil}}, slog.New(slog.DiscardHandler))
			var mu sync.Mutex
			held, most := 0, 0
			var sessions sync.WaitGroup
			for range 10 {
				sessions.Go(func() {
					done, err := d.redeem(t.Context(), claimed(test.size))
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					held++
					most = max(most, held)
					mu.Unlock()
					time.Sleep(time.Second) // what applying it takes, virtual
					mu.Lock()
					held--
					mu.Unlock()
					done()
				})
			}
			sessions.Wait()
			require.Equal(t, test.held, most)
		})
	}
}
