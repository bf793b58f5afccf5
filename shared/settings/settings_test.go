package settings_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/settings"
)

type part struct {
	URI string `envconfig:"T_URI" required:"true"`
}

type spec struct {
	part
	Wait  time.Duration `envconfig:"T_WAIT" default:"2s"`
	Lanes int           `envconfig:"T_LANES" default:"4"`
	Level slog.Level    `envconfig:"T_LEVEL" default:"info"`
	Names []string      `envconfig:"T_NAMES" default:"a,b"`
}

func (s *spec) Validate() error {
	var problems []error
	if s.Lanes < 1 {
		problems = append(problems, errors.New("T_LANES: must be at least 1"))
	}
	if s.Wait > time.Minute {
		problems = append(problems, errors.New("T_WAIT: must be at most 1m"))
	}
	return errors.Join(problems...)
}

func TestLoadFillsDefaults(t *testing.T) {
	t.Setenv("T_URI", "secret")
	var s spec
	require.NoError(t, settings.Load(&s))
	require.Equal(t, spec{part{"secret"}, 2 * time.Second, 4, slog.LevelInfo, []string{"a", "b"}}, s)
}

func TestLoadReportsEveryProblemAtOnceAndNoValue(t *testing.T) {
	t.Setenv("T_WAIT", "hunter2")
	t.Setenv("T_LANES", "hunter3")
	t.Setenv("T_LEVEL", "hunter4")
	var s spec
	err := settings.Load(&s)
	require.EqualError(t, err, `4 settings must be fixed:
  - T_URI: is required and not set
  - T_WAIT: its value cannot be read as a duration (for example 500ms, 15s, 2m)
  - T_LANES: its value cannot be read as a whole number
  - T_LEVEL: its value cannot be read as a log level (debug, info, warn or error)`)
}

func TestLoadReportsWhatCannotBeReadAndWhatIsWrongTogether(t *testing.T) {
	t.Setenv("T_WAIT", "2m")
	t.Setenv("T_LANES", "many") // its default is valid, so there is no second problem
	var s spec
	require.EqualError(t, settings.Load(&s), `3 settings must be fixed:
  - T_URI: is required and not set
  - T_LANES: its value cannot be read as a whole number
  - T_WAIT: must be at most 1m`)
}

func TestLoadWithPrefixPrefersItsOwnVariables(t *testing.T) {
	t.Setenv("T_URI", "shared")
	t.Setenv("T_LANES", "8")
	t.Setenv("ORDERS_T_LANES", "16")
	t.Setenv("ORDERS_T_NAMES", "") // empty is a value, too
	t.Setenv("PAYMENTS_T_URI", "own")
	var orders, payments, none spec
	require.NoError(t, settings.LoadWithPrefix(&orders, "ORDERS_"))
	require.Equal(t, spec{part{"shared"}, 2 * time.Second, 16, slog.LevelInfo, []string{}}, orders)
	require.NoError(t, settings.LoadWithPrefix(&payments, "PAYMENTS_"))
	require.Equal(t, spec{part{"own"}, 2 * time.Second, 8, slog.LevelInfo, []string{"a", "b"}}, payments)
	require.NoError(t, settings.Load(&none))
	require.Equal(t, "shared", none.URI)
}

func TestLoadWithPrefixNamesTheVariableThatIsWrong(t *testing.T) {
	t.Setenv("ORDERS_T_WAIT", "hunter2")
	t.Setenv("ORDERS_T_LANES", "0")
	var s spec
	require.EqualError(t, settings.LoadWithPrefix(&s, "ORDERS_"), `3 settings must be fixed:
  - ORDERS_T_URI (or T_URI): is required and not set
  - ORDERS_T_WAIT: its value cannot be read as a duration (for example 500ms, 15s, 2m)
  - ORDERS_T_LANES: must be at least 1`)
	t.Setenv("T_LANES", "0")
	var shared spec
	require.ErrorContains(t, settings.LoadWithPrefix(&shared, "PAYMENTS_"), "- T_LANES: must be at least 1")
}
