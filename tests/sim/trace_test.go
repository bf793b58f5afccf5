package sim

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"time"
)

// trace is what happened in a run, in order, for the analysis of a failure.
type trace struct {
	mu    sync.Mutex // guards everything below
	zero  time.Time  // from when moments count, as the plan's do
	lines []traced
}

type traced struct {
	at   time.Time
	text string
}

func newTrace() *trace { return &trace{zero: time.Now()} }

// begin lets moments count from now; those before are negative.
func (t *trace) begin(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.zero = now
}

func (t *trace) add(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, traced{time.Now(), fmt.Sprintf(format, args...)})
}

func (t *trace) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all strings.Builder
	for _, l := range t.lines {
		fmt.Fprintf(&all, "%8.3fs  %s\n", l.at.Sub(t.zero).Seconds(), l.text)
	}
	return all.String()
}

// Write adds a line of a service's log to the trace.
func (t *trace) Write(line []byte) (int, error) {
	t.add("%s", bytes.TrimSpace(line))
	return len(line), nil
}
