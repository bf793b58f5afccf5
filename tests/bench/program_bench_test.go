package bench

import (
	"bufio"
	"context"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/serve"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// served serves the projection timeline as a program, and returns its URL. It shares the process,
// and so the processors, with everything else.
func served(b *testing.B) string {
	b.Helper()
	handler, err := serve.Handler(projection.Timeline{})
	require.NoError(b, err)
	server := httptest.NewServer(handler)
	b.Cleanup(server.Close)
	return server.URL
}

// node runs the projection timeline in JavaScript, and returns its URL. end ends the
// program, and returns how much processor time it has used since its start.
func node(b *testing.B) (url string, end func() time.Duration) {
	b.Helper()
	program := exec.CommandContext(b.Context(), "node", "testdata/timeline.mjs")
	input, err := program.StdinPipe()
	require.NoError(b, err)
	output, err := program.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, program.Start())
	url, err = bufio.NewReader(output).ReadString('\n')
	require.NoError(b, err)
	return strings.TrimSpace(url), func() time.Duration {
		require.NoError(b, input.Close())
		require.NoError(b, program.Wait())
		return program.ProcessState.UserTime() + program.ProcessState.SystemTime()
	}
}

// through are the ways to the same projection: in the projector, behind HTTP in Go, and behind HTTP
// in JavaScript, in a process of its own whose processor time is reported apart.
func through(b *testing.B, events int, run func(b *testing.B, change func(*projector.Config))) {
	b.Helper()
	at := func(url string) func(*projector.Config) {
		return func(c *projector.Config) { c.ProjectionURL, c.ProjectionTimeout = url, 10*time.Second }
	}
	b.Run("go", func(b *testing.B) { run(b, nil) })
	b.Run("program", func(b *testing.B) { run(b, at(served(b))) })
	b.Run("node", func(b *testing.B) {
		if _, err := exec.LookPath("node"); err != nil {
			b.Skip("node is not installed")
		}
		url, end := node(b)
		run(b, at(url))
		b.ReportMetric(float64(end().Microseconds())/float64(events), "program-cpu-µs/event")
	})
}

// BenchmarkProjectProgram measures the rate of a projection behind HTTP and of the same one in the
// projector, with batches of 100.
func BenchmarkProjectProgram(b *testing.B) {
	const aggregates, events = 64, 64_000
	through(b, events, func(b *testing.B, change func(*projector.Config)) {
		newBacklog(b, 2*time.Millisecond, events, aggregates, envelope.SessionKey{}).project(b, 1, change)
	})
}

// BenchmarkProgramIdle measures the time from sending one event to its completion, with nothing
// else to do.
func BenchmarkProgramIdle(b *testing.B) {
	const events = 300
	through(b, events, func(b *testing.B, change func(*projector.Config)) {
		l := newBacklog(b, 0, 1, 1, envelope.SessionKey{})
		config := projectorConfig(l.stack)
		if change != nil {
			change(&config)
		}
		stop := start(b, func(ctx context.Context) error {
			return projector.Run(ctx, config, projector.Options{Instance: "bench"})
		})
		l.completed(b, 1)
		sender := newSender(b, l.stack)
		took := make([]time.Duration, 0, events)
		for n := 1; n <= events; n++ {
			began := time.Now()
			require.NoError(b, sender.SendMessage(b.Context(), counted(b, n, 1, envelope.SessionKey{}), nil))
			for l.stack.ServiceBus.Stats(subscriptionPath).Completed < n+1 {
				time.Sleep(50 * time.Microsecond)
			}
			took = append(took, time.Since(began))
			time.Sleep(10 * time.Millisecond)
		}
		reportTimes(b, took)
		stop()
	})
}
