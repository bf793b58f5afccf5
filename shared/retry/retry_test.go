package retry_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

func TestBackoffDoublesUpToMax(t *testing.T) {
	b := retry.Backoff{Initial: 100 * time.Millisecond, Max: time.Second}
	for _, longest := range []time.Duration{100, 200, 400, 800, 1000, 1000, 1000} {
		longest *= time.Millisecond
		wait := b.Next()
		require.GreaterOrEqual(t, wait, longest/2)
		require.LessOrEqual(t, wait, longest)
	}
	require.Equal(t, 7, b.Attempts())
	b.Reset()
	require.LessOrEqual(t, b.Next(), 100*time.Millisecond)
}

func TestBackoffOfManyAttemptsStaysAtMax(t *testing.T) {
	b := retry.Backoff{Initial: time.Nanosecond, Max: time.Hour}
	for range 10_000 {
		wait := b.Next()
		require.Positive(t, wait+1)
		require.LessOrEqual(t, wait, time.Hour)
	}
}

func TestSleepEndsWithTheContextsCause(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		cause := errors.New("fenced")
		ctx, cancel := context.WithCancelCause(t.Context())
		start := time.Now()
		time.AfterFunc(time.Second, func() { cancel(cause) })
		require.ErrorIs(t, retry.Sleep(ctx, time.Hour), cause)
		require.Equal(t, time.Second, time.Since(start))

		start = time.Now()
		require.NoError(t, retry.Sleep(t.Context(), 3*time.Second))
		require.Equal(t, 3*time.Second, time.Since(start))
	})
}
