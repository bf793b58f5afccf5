package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/settings"
	"github.com/sluice-cdc/sluice/shared/telemetry"
	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/internal/environ"
)

// statusLine is a record as the queries read it.
type statusLine struct {
	Msg, Level, Instance, Service string
	Status                        map[string]any
}

// The services log the status regularly, with every field that a query uses: without it no alert
// could fire.
func TestRunningServicesLogTheirStatus(t *testing.T) {
	servers := emulator.Start(t, emulator.Options{})
	settings := map[string]string{
		emulator.EnvMongo: servers.Endpoint(emulator.EnvMongo), emulator.EnvServiceBus: servers.Endpoint(emulator.EnvServiceBus),
		emulator.EnvBlob: servers.Endpoint(emulator.EnvBlob), "MONGODB_DATABASE": "shop", "MONGODB_COLLECTION": "events",
		"READ_MODEL_DATABASE": "readmodel", "SERVICE_BUS_TOPIC": servers.Route.Topic, "HTTP_ADDR": "", "STATUS_INTERVAL": "20ms",
	}
	producing, err := environ.Load(settings, producer.LoadConfig)
	require.NoError(t, err)
	settings["SERVICE_BUS_SUBSCRIPTION"] = servers.Route.Subscription
	projecting, err := environ.Load(settings, projector.LoadConfig)
	require.NoError(t, err)

	lines := make(statusLines, 1000)
	start(t, func(ctx context.Context) error {
		log := telemetry.Logger(lines, slog.LevelInfo, "producer", "producer-1")
		return producer.Run(ctx, producing, producer.Options{Logger: log, Instance: "producer-1"})
	})
	start(t, func(ctx context.Context) error {
		log := telemetry.Logger(lines, slog.LevelInfo, "projector", "projector-1")
		return projector.Run(ctx, projecting, projector.Options{Logger: log, Instance: "projector-1"})
	})

	asked := map[string]map[string]bool{"producer": {}, "projector": {}}
	for name := range list(t, "logs") {
		query := read(t, "infra/queries/"+name+".kql")
		for _, app := range placeholder.FindAllStringSubmatch(query, -1) {
			for _, field := range statusField.FindAllStringSubmatch(query, -1) {
				if asked[app[1]] != nil {
					asked[app[1]][field[1]] = true
				}
			}
		}
	}
	deadline := time.After(time.Minute)
	for led, seen := false, false; !led || !seen; {
		select {
		case line := <-lines:
			if line.Msg != telemetry.StatusMessage {
				continue
			}
			require.Regexp(t, regexp.MustCompile("^(producer|projector)-1$"), line.Instance)
			for field := range asked[line.Service] {
				require.Contains(t, line.Status, field, "%s", line.Service)
			}
			led = led || line.Service == "producer" && line.Status["role"] == "leader"
			seen = seen || line.Service == "projector"
		case <-deadline:
			require.Fail(t, "no status", "leader: %v, projector: %v", led, seen)
		}
	}
}

// statusLines receives a log, and drops records once it is full.
type statusLines chan statusLine

func (l statusLines) Write(record []byte) (int, error) {
	var line statusLine
	if json.Unmarshal(record, &line) == nil {
		select {
		case l <- line:
		default:
		}
	}
	return len(record), nil
}

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
