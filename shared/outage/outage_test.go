package outage_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/outage"
	"github.com/sluice-cdc/sluice/shared/telemetry"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

func TestAnOutageIsLoggedOnceAndSoIsItsEnd(t *testing.T) {
	var out bytes.Buffer
	o := outage.New(slog.New(slog.NewTextHandler(&out, nil)), "database")
	o.Report(nil)
	require.Empty(t, out.String())
	for range 5 {
		o.Report(errors.New("x"))
	}
	require.Error(t, o.Err())
	o.Report(nil)
	o.Report(nil)
	require.NoError(t, o.Err())
	o.Report(errors.New("y"))
	require.Equal(t, 2, strings.Count(out.String(), `msg="dependency fails; retrying" dependency=database error=`))
	require.Equal(t, 1, strings.Count(out.String(), `msg="dependency works again" dependency=database`))
}

// An outage that lasts is logged again, with its current reason and its duration.
func TestAnOutageThatLastsIsLoggedAgain(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		o := outage.New(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.TimeKey:
				return slog.Attr{}
			case telemetry.KeyToDo:
				require.Contains(t, a.Value.String(), "the command doctor")
				return slog.String(a.Key, "ADVICE")
			}
			return a
		}})), "database")
		o.Report(errors.New("away"), "attempt_of", "me")
		for range 11 {
			time.Sleep(time.Minute)
			o.Report(errors.New("not allowed"))
		}
		o.Report(nil)
		require.Equal(t, `level=WARN msg="dependency fails; retrying" dependency=database error=away to_do=ADVICE attempt_of=me
level=WARN msg="dependency still fails; retrying" dependency=database for=5m0s failures=6 error="not allowed" to_do=ADVICE
level=WARN msg="dependency still fails; retrying" dependency=database for=10m0s failures=11 error="not allowed" to_do=ADVICE
level=INFO msg="dependency works again" dependency=database for=11m0s failures=12
`, out.String())
	})
}
