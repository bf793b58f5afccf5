package sim

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

var shrinkFor = flag.Duration("shrink", 5*time.Minute, "how long the first plan that fails is shrunk, in real time; 0: not at all")

const (
	// shrinkTries is how many times a smaller plan is simulated before it counts as one that does
	// not fail.
	shrinkTries = 20
	// shrunkPlans is the folder in which shrunk plans are kept.
	shrunkPlans = "testdata/failed"
	// margin is the part of the test's time that is left for everything else.
	margin = 30 * time.Second
)

// shrinking is set once a plan is being shrunk: one in a process, since the others mostly fail for
// the same reason.
var shrinking atomic.Bool

// shrink leaves out of a failed plan whatever it fails without, in the same way, and prints what is
// left. Every try runs this program again, so that it can hang or crash.
func shrink(t *testing.T, s simulation, broken *promises) {
	t.Helper()
	if *shrinkFor <= 0 {
		return
	}
	if !shrinking.CompareAndSwap(false, true) {
		t.Log("not shrunk, since another plan is: simulate it alone")
		return
	}
	end := time.Now().Add(*shrinkFor)
	if deadline, ok := t.Deadline(); ok && deadline.Add(-margin).Before(end) {
		end = deadline.Add(-margin)
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(t.Context()), end)
	defer cancel()
	began, kind, tried := time.Now(), broken.kind(), 0
	fails := func(p plan.Plan) bool {
		tried++
		found, err := elsewhere(ctx, t.TempDir(), p, kind)
		if err != nil && ctx.Err() == nil {
			t.Logf("a smaller plan could not be tried: %v", err)
		}
		return slices.Contains(found, kind)
	}
	if !fails(s.plan) {
		t.Logf("not shrunk: in %d more tries the plan did not break again: %s", shrinkTries, kind)
		return
	}
	small := plan.Shrink(ctx, s.plan, fails)
	small.Broke = kind
	path, err := keep(small)
	require.NoError(t, err)
	t.Logf("%d plans were tried in %s; this one still breaks: %s\n%s\nagain: go test ./tests/sim -run 'TestSimulation$' -plan %s -tries %d\n"+
		"to have it simulated always, move it to tests/sim/%s",
		tried, time.Since(began).Round(time.Second), kind, small.Narrative(), path, shrinkTries, keptPlans)
}

// elsewhere simulates a plan in a process of its own, until it breaks a promise or has not broken
// it in so many tries, and returns all the promises that it broke.
func elsewhere(ctx context.Context, dir string, p plan.Plan, promise string) (broken []string, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	path, verdict := filepath.Join(dir, "plan.json"), filepath.Join(dir, "verdict.json")
	if err := os.WriteFile(path, p.Encode(), 0o600); err != nil {
		return nil, fmt.Errorf("write plan: %w", err)
	}
	out, err := exec.CommandContext(ctx, program, "-test.run", "^TestSimulation$", "-plan", path, "-tries", fmt.Sprint(shrinkTries),
		"-breaks", promise, "-shrink", "0", "-verdict", verdict).CombinedOutput()
	if err == nil || ctx.Err() != nil {
		return nil, ctx.Err()
	}
	text, readErr := os.ReadFile(verdict)
	if os.IsNotExist(readErr) { // it crashed
		if lines := strings.SplitAfter(string(out), "\n"); !strings.Contains(string(out), "panic:") {
			return nil, fmt.Errorf("simulate: %w\n%s", err, strings.Join(lines[max(0, len(lines)-20):], ""))
		}
		return []string{otherwise}, nil
	}
	if readErr != nil {
		return nil, fmt.Errorf("read verdict: %w", readErr)
	}
	if err := json.Unmarshal(text, &broken); err != nil {
		return nil, fmt.Errorf("read verdict: %w", err)
	}
	return broken, nil
}

// keep writes a shrunk plan into that folder, and returns its path from the repository's root.
func keep(p plan.Plan) (string, error) {
	if err := os.MkdirAll(shrunkPlans, 0o755); err != nil {
		return "", fmt.Errorf("keep plan: %w", err)
	}
	name := fmt.Sprintf("seed-%d-%s.json", p.Seed, strings.ReplaceAll(p.Broke, " ", "-"))
	if err := os.WriteFile(filepath.Join(shrunkPlans, name), p.Encode(), 0o600); err != nil {
		return "", fmt.Errorf("keep plan: %w", err)
	}
	return "tests/sim/" + shrunkPlans + "/" + name, nil
}

// Another process simulates a smaller plan and reports which promises it broke; nothing if it broke
// none.
func TestAPlanIsJudgedInAProcessOfItsOwn(t *testing.T) {
	virtualtime.Require(t)
	p := plan.Draw(3)
	p.Steps, p.Garbage, p.Bursts = nil, nil, p.Bursts[:1]
	p.Heals = p.Bursts[0].At
	gaveUp := checker.ErrGaveUp.Error()
	broken, err := elsewhere(t.Context(), t.TempDir(), p, gaveUp)
	require.NoError(t, err)
	require.Empty(t, broken)

	p.Settings.Receiver = "none that there is"
	broken, err = elsewhere(t.Context(), t.TempDir(), p, gaveUp)
	require.NoError(t, err)
	require.Contains(t, broken, gaveUp)
}
