package leader

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// Storage that is unreachable and then refuses requests: the log reports each, and not every
// second.
func TestAStandbyLogsRepeatedlyWhyItCannotTakePart(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		v := (&memory{}).view()
		v.set(away, nil)
		done := make(chan error, 1)
		go func() {
			done <- New(testConfig("a"), v, v, slog.New(slog.NewTextHandler(&log, nil))).Run(ctx, newHistory().work("a"))
		}()
		time.Sleep(time.Minute) // virtual
		v.set(func(context.Context, string) error { return errors.New("not allowed") }, nil)
		time.Sleep(10 * time.Minute) // virtual
		cancel()
		require.NoError(t, <-done)
		var why []string
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, `dependency="Blob storage"`) {
				_, reason, _ := strings.Cut(line, "error=")
				why = append(why, reason)
			}
		}
		require.Len(t, why, 3)
		require.Contains(t, why[0], errAway.Error())
		require.Contains(t, why[1], "not allowed")
		require.Contains(t, why[2], "not allowed")
	})
}

// However long the poll interval of a standby is, it polls often once the leader is late.
func TestASilentLeaderIsNoticedWithinAClosePoll(t *testing.T) {
	for phase := range 8 {
		virtualtime.Test(t, func(t *testing.T) {
			m, h := &memory{}, newHistory()
			config := testConfig("a")
			config.FenceAfter, config.TakeoverAfter, config.StandbyPoll = 2500*time.Millisecond, 4*time.Second, 1500*time.Millisecond
			a := join(t, m, h, config)
			<-h.begun
			config.Instance = "b"
			b := join(t, m, h, config)
			time.Sleep(20*time.Second + time.Duration(phase)*250*time.Millisecond) // virtual
			a.view.set(hang, nil)
			last := m.writes[len(m.writes)-1].HeartbeatAt
			second := <-h.begun
			require.Equal(t, "b", second.instance)
			// The last record was read at the poll after it, and its age counts from then.
			require.LessOrEqual(t, second.began.Sub(last), config.StandbyPoll+config.TakeoverAfter+fastPoll, "phase %d", phase)
			a.view.set(nil, nil)
			a.leave(t)
			b.leave(t)
		})
	}
}
