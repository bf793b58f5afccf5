package deploy

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/telemetry"
	"github.com/sluice-cdc/sluice/tests/emulator"
)

// statusLine is a record as the queries read it.
type statusLine struct {
	Msg, Level, Instance, Service string
	Status                        map[string]any
}

// The services log the status regularly, with every field that a query uses: without it no alert
// could fire.
func TestRunningServicesLogTheirStatus(t *testing.T) {
	clearSettings(t)
	servers, err := emulator.New(t.Context(), emulator.Options{})
	require.NoError(t, err)
	for name, value := range map[string]string{
		emulator.EnvMongo: servers.Endpoint(emulator.EnvMongo), emulator.EnvServiceBus: servers.Endpoint(emulator.EnvServiceBus),
		emulator.EnvBlob: servers.Endpoint(emulator.EnvBlob), "MONGODB_DATABASE": "shop", "MONGODB_COLLECTION": "events",
		"READ_MODEL_DATABASE": "readmodel", "SERVICE_BUS_TOPIC": servers.Route.Topic, "HTTP_ADDR": "", "STATUS_INTERVAL": "20ms",
	} {
		t.Setenv(name, value)
	}
	producing, err := producer.LoadConfig()
	require.NoError(t, err)
	t.Setenv("SERVICE_BUS_SUBSCRIPTION", servers.Route.Subscription)
	projecting, err := projector.LoadConfig()
	require.NoError(t, err)

	ctx, stop := context.WithCancel(t.Context())
	serving, stopServing := context.WithCancel(t.Context())
	var all, serverRun sync.WaitGroup
	defer serverRun.Wait()
	defer stopServing()
	defer all.Wait()
	defer stop()
	serverRun.Go(func() { _ = servers.Run(serving) })
	lines := make(chan statusLine, 1000)
	logger := func(service string) *slog.Logger {
		r, w := io.Pipe()
		all.Go(func() { forward(r, lines) })
		context.AfterFunc(serving, func() { _ = w.Close() })
		return telemetry.Logger(w, slog.LevelInfo, service, service+"-1")
	}
	producerLog, projectorLog := logger("producer"), logger("projector")
	var services sync.WaitGroup
	services.Go(func() {
		_ = producer.Run(ctx, producing, producer.Options{Logger: producerLog, Instance: "producer-1"})
	})
	services.Go(func() {
		_ = projector.Run(ctx, projecting, projector.Options{Logger: projectorLog, Instance: "projector-1"})
	})
	all.Go(func() { services.Wait(); stopServing() })

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

// forward passes on what is logged, and drops records once the channel is full.
func forward(r io.Reader, to chan<- statusLine) {
	scanner := bufio.NewScanner(r)
	for scanner.Scan() {
		var line statusLine
		if json.Unmarshal(scanner.Bytes(), &line) == nil {
			select {
			case to <- line:
			default:
			}
		}
	}
}
