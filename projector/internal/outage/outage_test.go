package outage_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector/internal/outage"
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
	require.Equal(t, 2, strings.Count(out.String(), `msg="dependency fails; trying again" dependency=database error=`))
	require.Equal(t, 1, strings.Count(out.String(), `msg="dependency works again" dependency=database`))
}
