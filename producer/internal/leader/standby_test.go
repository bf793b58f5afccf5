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

// Storage that is away and then refuses: the log says each, and not every second.
func TestWhyAStandbyCannotTakePartIsToldAgain(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		v := (&memory{}).view()
		v.set(func(context.Context, string) error { return errAway }, nil)
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
			if strings.Contains(line, "dependency=election") {
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
