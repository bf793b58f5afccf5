package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/settings"
)

// A replica whose settings are wrong ends before it can log anything else. The alert on errors
// selects records by level and cannot read text that is printed for people.
func TestWrongSettingsAreLoggedAsAnError(t *testing.T) {
	wrong := settings.Problems{errors.New("MONGODB_URI: is required")}
	programs := map[string]func(args []string, out, errOut io.Writer) int{
		"producer": func(args []string, out, errOut io.Writer) int {
			return producer.Execute(t.Context(), args, func() ([]producer.Config, error) { return nil, wrong },
				producer.Options{}, out, errOut, func(context.Context, []producer.Config) error { return nil })
		},
		"projector": func(args []string, out, errOut io.Writer) int {
			return projector.Execute(t.Context(), args, func() (projector.Config, error) { return projector.Config{}, wrong },
				projector.Options{}, out, errOut, func(context.Context, projector.Config) error { return nil })
		},
	}
	for name, program := range programs {
		for _, args := range [][]string{nil, {"run"}} {
			var out, errOut bytes.Buffer
			require.Equal(t, 2, program(args, &out, &errOut))
			var record struct{ Level, Service, Instance, Error string }
			require.NoError(t, json.Unmarshal(out.Bytes(), &record), "one record: %s", &out)
			require.Equal(t, "ERROR", record.Level)
			require.Equal(t, name, record.Service)
			require.NotEmpty(t, record.Instance)
			require.Contains(t, record.Error, "MONGODB_URI: is required")
			require.Contains(t, errOut.String(), "MONGODB_URI: is required", "it is readable at a prompt")
		}
		var out, errOut bytes.Buffer
		require.Equal(t, 2, program([]string{"doctor"}, &out, &errOut))
		require.Empty(t, out.String(), "an operator's command does not log as the service")
	}
}
