package deploy

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/settings"
)

// A replica whose settings are wrong ends before it can log anything else. The alert on errors
// selects records by level and cannot read text that is printed for people.
func TestWrongSettingsAreLoggedAsAnError(t *testing.T) {
	wrong := settings.Problems{errors.New("MONGODB_URI: is required")}
	for _, s := range services {
		for _, args := range [][]string{nil, {"run"}} {
			r := execute(t, s.name, args, wrong)
			require.Equal(t, 2, r.code)
			var record struct{ Level, Service, Instance, Error string }
			require.NoError(t, json.Unmarshal([]byte(r.out), &record), "one record: %s", r.out)
			require.Equal(t, "ERROR", record.Level)
			require.Equal(t, s.name, record.Service)
			require.NotEmpty(t, record.Instance)
			require.Contains(t, record.Error, "MONGODB_URI: is required")
			require.Contains(t, r.errOut, "MONGODB_URI: is required", "it is readable at a prompt")
		}
		r := execute(t, s.name, []string{"doctor"}, wrong)
		require.Equal(t, 2, r.code)
		require.Empty(t, r.out, "an operator's command does not log as the service")
	}
}
