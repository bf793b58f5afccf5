//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/azurite"
	"github.com/sluice-cdc/sluice/tests/internal/child"
)

// TestMain has six runs of the command at a time by default: they wait more than they work.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// TestLocal runs the local command as a user would: a program of its own, with services of its own.
func TestLocal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := command{program: filepath.Join(dir, "local"), services: dir}
	require.NoError(t, child.BuildProgram(t.Context(), "tests/cmd/local", c.program))
	_, _, err := child.Build(t.Context(), c.services)
	require.NoError(t, err)
	for name, test := range map[string]func(*testing.T, command){
		"comes out exactly right through a killed and a terminated leader": exactlyRight,
		"comes out exactly right whatever Service Bus does":                serviceBusHarm,
		"comes out exactly right after a poison event is replayed":         poisoned,
		"reports what differs from a wrong expectation":                    wrongExpectation,
		"gives up at once where the projection cannot read the events":     unreadable,
		"mirrors the source byte by byte":                                  mirror,
		"adds up customers through killed projectors":                      customers,
		"runs a program of the user's as the projection":                   ownProgram,
		"begins with a full collection":                                    beginsFull,
		"begins the stream with a snapshot":                                beginsWithSnapshot,
		"fails over on Azurite":                                            azuriteFailover,
		"refuses wrong usage":                                              wrongUsage,
		"leaves nothing behind when interrupted or killed":                 interrupted,
		"follows a collection of one's own, and only reads there":          follows,
		"ends with the producers' error when a collection is replaced":     followsUntilReplaced,
		"follows through outages of the user's MongoDB":                    followsThroughOutages,
		"ends in order when its output is closed":                          followsWithoutAReader,
		"follows at a terminal, by make, through all that a new user does": firstContact,
		"follows a collection that is replaced, if that is accepted":       followsWhereReplacementsAreAccepted,
		"follows at a terminal of any width":                               fitsEveryTerminal,
		"follows at a terminal without a cursor, until it is closed":       followsAtAnyTerminal,
		"writes into a collection of one's own on request":                 writesOnRequest,
		"reports what is wrong with a user's MongoDB":                      theirsIsUnfit,
		"ends when asked, whatever harm is still planned":                  stopsBeforeHarm,
		"serves the stack only, for a run with external servers":           stackOnly,
		"serves the stack on ports of one's own, and keeps the data":       stackKept,
		"needs no more connections than Microsoft's emulator takes":        fewConnections,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, c)
		})
	}
}

// command is the program under test, and where the services' programs are: each run would build its
// own.
type command struct {
	program, services string
	env               []string // beside that of the test
}

// with returns the command with more variables.
func (c command) with(env ...string) command {
	c.env = slices.Concat(c.env, env)
	return c
}

// result is how a run of the command ended.
type result struct {
	code   int
	out    string // both streams
	report map[string]any
}

// run runs the command and makes sure that nothing of it is left when it has ended.
func (c command) run(t *testing.T, args ...string) result {
	t.Helper()
	reportFile := filepath.Join(t.TempDir(), "report.json")
	cmd := c.command(t, append(args, "--report", reportFile)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if cmd.ProcessState == nil {
		require.NoError(t, err)
	}
	r := result{code: cmd.ProcessState.ExitCode(), out: out.String()}
	if text, err := os.ReadFile(reportFile); err == nil {
		require.NoError(t, json.Unmarshal(text, &r.report))
	}
	requireNothingLeft(t, cmd)
	return r
}

// right runs the command and requires that everything comes out exactly right, with these numbers
// in the report.
func (c command) right(t *testing.T, numbers map[string]float64, args ...string) result {
	t.Helper()
	r := c.run(t, args...)
	require.Zero(t, r.code, r.out)
	require.Contains(t, r.out, "EXACTLY RIGHT")
	for field, want := range numbers {
		require.InDelta(t, want, r.report[field], 0, field)
	}
	return r
}

// command prepares a run with a temporary directory of its own. The run's children can be
// identified by it: their programs are there.
func (c command) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // a run that builds the services may begin with an empty build cache
	t.Cleanup(cancel)
	dir := t.TempDir()
	if !slices.Contains(args, "--stack-only") && !slices.Contains(args, buildsItsOwn) {
		for _, program := range []string{"producer", "projector"} {
			require.NoError(t, os.Link(filepath.Join(c.services, program), filepath.Join(dir, program)))
		}
		args = append([]string{"--services", dir}, args...)
	}
	cmd := exec.CommandContext(ctx, c.program, args...)
	cmd.Env = append(append(os.Environ(), "TMPDIR="+dir), c.env...)
	return cmd
}

// buildsItsOwn marks a run that builds the services, as every run without --services does.
const buildsItsOwn = "--services="

func tempDir(cmd *exec.Cmd) string {
	for _, kv := range cmd.Env {
		if dir, ok := strings.CutPrefix(kv, "TMPDIR="); ok && dir != os.Getenv("TMPDIR") {
			return dir
		}
	}
	return ""
}

// requireNothingLeft requires that no process is left whose program is in the command's temporary
// directory.
func requireNothingLeft(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	require.Empty(t, children(t, cmd), "processes are left behind")
}

func children(t *testing.T, cmd *exec.Cmd) (pids []int) {
	t.Helper()
	dir := tempDir(cmd)
	require.NotEmpty(t, dir)
	all, err := procfs.AllProcs()
	require.NoError(t, err)
	for _, p := range all {
		if program, err := p.Executable(); err == nil && strings.HasPrefix(program, dir) { // else it has just ended
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// input writes events with the traps of real data: types with dots, dollars and parentheses, equal
// times, events that are equal but for their version, and one aggregate of 464 events.
func input(t *testing.T) (file string, expected map[string]any) {
	t.Helper()
	types := []string{"SRM: In Transfer to Execution Syst.", "Transfer Failed (E.Sys.)", "$start", "100%", "a.b.c", "plain"}
	sizes := []int{464, 1, 2, 7}
	for range 60 {
		sizes = append(sizes, 9)
	}
	var lines bytes.Buffer
	expected = map[string]any{}
	total := 0
	// Round by round, so that the aggregates' events are mixed.
	for version := 1; version <= 464; version++ {
		for i, size := range sizes {
			if version > size {
				continue
			}
			id := fmt.Sprintf("case-%03d", i)
			kind := types[(i+version)%len(types)]
			at := fmt.Sprintf("2026-01-%02dT12:00:00Z", 1+version/24) // equal times
			fmt.Fprintf(&lines, `{"aggregateId":%q,"version":%d,"type":%q,"occurredAt":%q,"data":{"same":true}}`+"\n", id, version, kind, at)
			total++
			if version == 1 {
				expected[id] = map[string]any{"events": size, "types": map[string]int{}, "firstOccurredAt": at}
			}
			e := expected[id].(map[string]any)
			e["types"].(map[string]int)[kind]++
			e["lastOccurredAt"], e["lastType"] = at, kind
		}
	}
	require.Equal(t, 464+1+2+7+60*9, total)
	file = filepath.Join(t.TempDir(), "events.ndjson")
	require.NoError(t, os.WriteFile(file, lines.Bytes(), 0o600))
	return file, expected
}

func expectation(t *testing.T, expected map[string]any) string {
	t.Helper()
	text, err := json.Marshal(expected)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "expected.json")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	return file
}

func exactlyRight(t *testing.T, c command) {
	file, expected := input(t)
	r := c.right(t, map[string]float64{
		"events_inserted": 1014, "events_published": 1014, "events_applied": 1014, "aggregates": 64, "lost": 0,
		"duplicate_effects": 0, "out_of_order": 0, "mismatches": 0, "dead_lettered": 0, "seed": 1,
	}, "--input", file, "--expect", expectation(t, expected), "--once", "--rate=400",
		"--chaos", "kill-leader@500ms,term-leader@1s,kill-projector@700ms", "--seed=1")
	require.Contains(t, r.out, "EXACTLY RIGHT: 64 of 64 aggregates")
	failovers, _ := r.report["failovers"].([]any)
	require.Len(t, failovers, 2, r.out)
	for i, kind := range []string{"kill-leader", "term-leader"} {
		f, _ := failovers[i].(map[string]any)
		require.Equal(t, kind, f["kind"])
		require.Equal(t, "publish", f["measured_by"], "events were kept back so that the next leader had something to publish")
		require.Greater(t, f["first_publish_after_ms"], 0.0)
	}
	require.Contains(t, r.out, "term-leader is due and no producer leads: it waits for the next leader")
}

func serviceBusHarm(t *testing.T, c command) {
	file, expected := input(t)
	r := c.right(t, map[string]float64{
		"events_inserted": 1014, "events_published": 1014, "events_applied": 1014, "aggregates": 64, "lost": 0,
		"duplicate_effects": 0, "out_of_order": 0, "mismatches": 0, "dead_lettered": 0,
	}, "--input", file, "--expect", expectation(t, expected), "--once", "--rate=200", "--seed=1",
		"--chaos", "servicebus-busy@500ms:500ms,lose-ack@1100ms,slow-ack@1200ms:1s,detach-links@1500ms,expire-locks@2s,"+
			"servicebus-slow@2200ms:1s,servicebus-flaky@2500ms:1500ms,drop-servicebus@4s,lose-ack@4500ms")
	require.Greater(t, r.report["duplicates_published"], 0.0, "what was stored and not acknowledged comes again")
	require.Regexp(t, `detach-links: Service Bus detached [1-9]`, r.out)
	for _, lasting := range []string{"servicebus-busy", "slow-ack", "servicebus-slow", "servicebus-flaky"} {
		require.Contains(t, r.out, lasting+" is over")
	}
}

// poisoned makes an event poison: its aggregate is parked, the others go on, and a replay repairs
// it.
func poisoned(t *testing.T, c command) {
	r := c.right(t, map[string]float64{"events_applied": 600, "parked": 0, "dead_lettered": 0, "lost": 0, "duplicate_effects": 0, "out_of_order": 0},
		"--events=600", "--rate=150", "--chaos=poison@1s:1s", "--seed=1")
	require.Regexp(t, `poison: event \d+ of \S+ is refused and its aggregate is parked; the others go on`, r.out)
	require.Regexp(t, `poison: the cause is gone; \S+: [1-9]\d* events? applied; it is not parked`, r.out)
}

func wrongExpectation(t *testing.T, c command) {
	file, expected := input(t)
	expected["case-000"].(map[string]any)["events"] = 465
	delete(expected, "case-001")
	r := c.run(t, "--input", file, "--expect", expectation(t, expected), "--once", "--quiet")
	require.Equal(t, 1, r.code, r.out)
	require.Contains(t, r.out, "NOT RIGHT: 62 of 63 aggregates")
	require.Contains(t, r.out, "case-000: events is 464, expected 465")
	require.Contains(t, r.out, "case-001: should not be there, with 1 events")
	require.InDelta(t, 1, r.report["lost"], 0)
	require.InDelta(t, 1, r.report["duplicate_effects"], 0)
	require.InDelta(t, 2, r.report["mismatches"], 0)
}

// unreadable: the projection refuses all events; nothing that is missing can come, and the run
// reports that instead of waiting.
func unreadable(t *testing.T, c command) {
	event := `{"aggregateId":"order-%d","version":1,"type":"OrderPlaced","occurredAt":"2026-01-01T00:00:00Z","data":{}}` + "\n"
	for name, test := range map[string]struct {
		events int
		args   []string
		want   string
	}{
		"when all are refused":            {5, []string{"--once"}, "the broker holds nothing any more, and 5 of 5 events are dead-lettered"},
		"when none of the first is taken": {2000, []string{"--rate=100"}, "the projection orders has applied none of the events"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var lines strings.Builder
			for i := range test.events {
				fmt.Fprintf(&lines, event, i)
			}
			file := filepath.Join(t.TempDir(), "events.ndjson")
			require.NoError(t, os.WriteFile(file, []byte(lines.String()), 0o600))
			r := c.run(t, append(test.args, "--input", file, "--projection=orders")...)
			require.Equal(t, 1, r.code, r.out)
			require.Contains(t, r.out, "The run was given up: what is missing will not come: "+test.want)
			require.Contains(t, r.out, "ProjectionFailed: the event has no data.customerId")
			require.NotContains(t, r.out, "nothing moved")
			require.NotContains(t, r.out, "should not be there", "what is missing is not too much")
		})
	}
}

func mirror(t *testing.T, c command) {
	file, _ := input(t)
	// What looks like Extended JSON, and what is as deep as MongoDB stores.
	odd := `{"aggregateId":"odd","version":1,"type":"T","occurredAt":"2026-01-01T00:00:00Z","data":{"$numberLong":"1","in":{"$oid":"x"},"$date":"no","a.b":{"$date":{"$numberLong":"1"}},"":0}}` + "\n" +
		`{"aggregateId":"odd","version":2,"type":"T","occurredAt":"2026-01-01T00:00:00Z","data":` + strings.Repeat(`{"n":`, 179) + "1" + strings.Repeat("}", 180) + "\n"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, append(text, odd...), 0o600))
	r := c.right(t, nil, buildsItsOwn, "--input", file, "--once", "--projection=mirror", "--projectors=2", "--latency=1ms", "--quiet")
	require.Contains(t, r.out, "EXACTLY RIGHT: 65 of 65 aggregates (every document of the mirror against its source")
}

func azuriteFailover(t *testing.T, c command) {
	file, expected := input(t)
	r := c.run(t, "--input", file, "--expect", expectation(t, expected), "--once", "--rate=400", "--azurite",
		"--chaos", "term-leader@500ms,kill-leader@1500ms")
	if strings.Contains(r.out, azurite.ErrNotInstalled.Error()) && os.Getenv("CI") != "true" {
		t.Skip(azurite.ErrNotInstalled)
	}
	require.Zero(t, r.code, r.out)
	require.Contains(t, r.out, "EXACTLY RIGHT: 64 of 64 aggregates")
	failovers, _ := r.report["failovers"].([]any)
	require.Len(t, failovers, 2, r.out)
}

func wrongUsage(t *testing.T, c command) {
	r := c.run(t, "--console=0.0.0.0:8090") // the contradictions are in package flags
	require.Equal(t, 2, r.code, r.out)
	require.Contains(t, r.out, "listens on a loopback address only")
}

func interrupted(t *testing.T, c command) {
	for name, test := range map[string]struct {
		signal syscall.Signal
		code   int
	}{
		"interrupted": {syscall.SIGINT, 130},
		"terminated":  {syscall.SIGTERM, 130},
		"killed":      {syscall.SIGKILL, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := c.command(t, "--quiet")
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			require.NoError(t, cmd.Start())
			// Two producers, each with its parent, and a projector.
			require.Eventually(t, func() bool { return len(children(t, cmd)) == 5 }, 2*time.Minute, 20*time.Millisecond)
			require.NoError(t, cmd.Process.Signal(test.signal))
			_ = cmd.Wait() // the exit code is checked
			require.Equal(t, test.code, cmd.ProcessState.ExitCode(), out.String())
			// After SIGKILL it is the kernel that ends the children, and their own broken output
			// besides.
			require.Eventually(t, func() bool { return len(children(t, cmd)) == 0 }, 10*time.Second, 5*time.Millisecond)
		})
	}
}

func stopsBeforeHarm(t *testing.T, c command) {
	r := watched(t, c.command(t, "--events=0", "--chaos=kill-leader@1h"))
	r.until(t, "leads, epoch")
	code, text := r.stop(t)
	require.Zero(t, code, text)
	require.Contains(t, text, "EXACTLY RIGHT")
}

func stackOnly(t *testing.T, c command) {
	cmd := c.command(t, "--stack-only")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	settings := exported(t, out, 5)
	require.Contains(t, settings, "MONGODB_URI")
	require.Contains(t, settings, "SERVICE_BUS_CONNECTION_STRING")
	require.Contains(t, settings, "BLOB_CONNECTION_STRING")
	require.Equal(t, "changes", settings["SERVICE_BUS_TOPIC"])
	require.Equal(t, "projector", settings["SERVICE_BUS_SUBSCRIPTION"])

	for name, value := range settings {
		c = c.with(name + "=" + value)
	}
	r := c.right(t, nil, "--external", "--input", firstLines(t, 200), "--once", "--quiet")
	require.Contains(t, r.out, "an unknown number published")

	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), "a signal is how it is meant to end")
}

// firstLines returns a file with the first n events of the input; every aggregate's versions still
// begin at 1.
func firstLines(t *testing.T, n int) string {
	t.Helper()
	file, _ := input(t)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	lines := strings.SplitAfterN(string(text), "\n", n+1)
	part := filepath.Join(t.TempDir(), "part.ndjson")
	require.NoError(t, os.WriteFile(part, []byte(strings.Join(lines[:n], "")), 0o600))
	return part
}

func customers(t *testing.T, c command) {
	r := c.right(t, map[string]float64{"events_applied": 600}, "--projection=orders", "--events=600", "--rate=200", "--projectors=3",
		"--chaos=kill-projector@1s,mongo-stepdown@2s", "--seed=3", "--quiet")
	require.Contains(t, r.out, "every customer's totals, recomputed from the source")
}

// beginsFull runs with a collection that is full before the producers begin: the read model is
// built beside what is inserted, goes on with what waited, and comes out exactly right, although
// leader and projector are killed.
func beginsFull(t *testing.T, c command) {
	c.right(t, map[string]float64{"events_inserted": 600, "events_applied": 3600, "lost": 0}, "--build", "--before=3000",
		"--projection=orders", "--events=600", "--rate=200", "--chaos=kill-leader@1s,kill-projector@2s", "--seed=5", "--quiet")
}

// beginsWithSnapshot runs with a collection that is full before the producers begin: the stream
// begins with its documents, beside what is inserted, and comes out exactly right, although leaders
// are killed within the snapshot.
func beginsWithSnapshot(t *testing.T, c command) {
	c.right(t, map[string]float64{"events_inserted": 8600, "events_applied": 8600, "lost": 0}, "--snapshot", "--before=8000",
		"--events=600", "--rate=200", "--chaos=kill-leader@300ms", "--seed=5", "--quiet")
}
