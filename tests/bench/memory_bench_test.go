package bench

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/child"
)

// BenchmarkProducerMemory starts two producers, as processes, on a collection with BACKLOG events
// (default 100,000) that are not published yet, and samples their resident memory until all are.
func BenchmarkProducerMemory(b *testing.B) {
	backlog := number(b, "BACKLOG", 100_000)
	program := buildProducer(b)
	for _, format := range []string{"json", "bson"} {
		for _, pad := range []int{100, 1000, 16000} {
			events := min(backlog, 1_000_000_000/pad) // the server keeps all of them in memory
			b.Run(fmt.Sprintf("backlog=%d/format=%s/pad=%d", events, format, pad), func(b *testing.B) {
				followMemory(b, program, format, events, pad)
			})
		}
	}
}

// buildProducer returns the producer's program.
func buildProducer(b *testing.B) string {
	b.Helper()
	program := filepath.Join(b.TempDir(), "producer")
	b.Setenv("GOFLAGS", "-trimpath -tags=grpcnotrace") // as it is released
	require.NoError(b, child.BuildProgram(b.Context(), "producer/cmd/producer", program))
	return program
}

func followMemory(b *testing.B, program, format string, backlog, pad int) {
	entities := emulator.Entities()
	entities.Topics[0].Subscriptions[0].Rules = []servicebus.Rule{} // messages are accepted and not stored
	s := newStack(b, emulator.Options{ServiceBus: &entities, OplogBytes: 8 << 30})
	begun := time.Now().Add(-2 * time.Second)
	insertEvents(b, connect(b, s.Endpoint(emulator.EnvMongo)).Database("shop").Collection("events"), backlog, 10_000, pad)

	leader := startProducer(b, s, program, format, begun)
	for s.ServiceBus.Stats(emulator.Topic).Accepted == 0 {
		time.Sleep(10 * time.Millisecond) // the interval of the samples
	}
	standby := startProducer(b, s, program, format, begun)
	var most, mostStanding float64
	quarters := make([]float64, 4) // the maximum in each quarter of the backlog
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		published := s.ServiceBus.Stats(emulator.Topic).Accepted
		now := resident(b, leader.Process.Pid)
		most, mostStanding = max(most, now), max(mostStanding, resident(b, standby.Process.Pid))
		if published >= backlog {
			break
		}
		quarter := &quarters[published*4/backlog]
		*quarter = max(*quarter, now)
		<-tick.C
	}
	for _, p := range []*exec.Cmd{standby, leader} {
		require.NoError(b, p.Process.Signal(syscall.SIGTERM))
		require.NoError(b, p.Wait())
	}
	used := leader.ProcessState.UserTime() + leader.ProcessState.SystemTime()
	b.ReportMetric(float64(used.Microseconds())/float64(backlog), "leader-cpu-µs/event")
	b.ReportMetric(most, "leader-MiB")
	b.ReportMetric(mostStanding, "standby-MiB")
	for i, mib := range quarters {
		b.ReportMetric(mib, fmt.Sprintf("quarter-%d-MiB", i+1))
	}
	b.ReportMetric(0, "ns/op")
}

func startProducer(b *testing.B, s *emulator.Stack, program, format string, begun time.Time, settings ...string) *exec.Cmd {
	l, err := net.Listen("tcp", "127.0.0.1:0") // a free port
	require.NoError(b, err)
	addr := l.Addr().String()
	require.NoError(b, l.Close())
	p := exec.CommandContext(b.Context(), program)
	p.Env = append(s.Env(), "MONGODB_DATABASE=shop", "MONGODB_COLLECTION=events", "SERVICE_BUS_TOPIC="+emulator.Topic,
		"OPERATIONS=insert", "MESSAGE_FORMAT="+format, "HTTP_ADDR="+addr,
		"HOSTNAME=bench-"+addr)
	for _, name := range []string{"GOGC", "GOMEMLIMIT", "MAX_IN_FLIGHT_EVENTS", "MAX_IN_FLIGHT_BYTES", "PUBLISH_LANES_MAX", "BATCH_SCOPE", "SNAPSHOT_CHUNK"} { // to try other values
		if value := os.Getenv(name); value != "" {
			p.Env = append(p.Env, name+"="+value)
		}
	}
	if p.Env = append(p.Env, settings...); !begun.IsZero() {
		p.Env = append(p.Env, "START_FROM=timestamp", "START_AT="+begun.UTC().Format(time.RFC3339))
	}
	p.Stderr = os.Stderr
	require.NoError(b, p.Start())
	b.Cleanup(func() { _ = p.Process.Kill() })
	return p
}

// resident returns the resident memory of a process and its children in MiB, from Linux's /proc.
func resident(b *testing.B, pid int) (together float64) {
	for _, process := range child.Family(pid) {
		together += residentAlone(b, process)
	}
	return together
}

func residentAlone(b *testing.B, pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Skip("memory is read from /proc, as on Linux")
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	line, _, _ := strings.Cut(rest, "kB")
	kb, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
	require.NoError(b, err)
	return kb / 1024
}
