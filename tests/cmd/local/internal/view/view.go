// Package view shows a run in progress: on a terminal a block that is refreshed in place, with
// events as lines above it; otherwise a plain line every two seconds; or nothing.
package view

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/console"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

// The times between two refreshments.
const (
	terminalEvery = 200 * time.Millisecond
	plainEvery    = 2 * time.Second
)

// wide is the width of a terminal that does not report one, and narrow the width below which the
// block has one count a line.
const wide, narrow = 80, 60

// Live shows events and Views; it is safe for use by several goroutines.
type Live struct {
	w        io.Writer
	terminal bool
	columns  func() int // of the terminal, whose size may change at any time
	quiet    bool
	watch    func(at time.Duration, text string) // may be nil

	mu    sync.Mutex    // guards what follows, and the order on w
	lines int           // of the block that is on the screen
	shown time.Duration // the latest time that was shown
}

// Preparing stands for the time before there is any: a run's clock begins with the first insert, as
// the times of its harm do.
const Preparing time.Duration = -1

// New shows on w: in place when w is a terminal, nothing at all when quiet. closed is called when w
// takes nothing any more, such as a pipe whose reader has ended; it may be called again.
func New(w io.Writer, quiet bool, closed func()) *Live {
	f, isFile := w.(*os.File)
	return &Live{w: &output{w, closed}, quiet: quiet, terminal: isFile && isTerminal(f), columns: func() int { return columns(f) }}
}

// columns returns the width of a terminal.
func columns(f *os.File) int {
	if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
		return int(size.Col)
	}
	return wide
}

// Columns returns the width to which text on w is wrapped; 0 if w is no terminal, and text is left
// as it is.
func Columns(w *os.File) int {
	if !isTerminal(w) {
		return 0
	}
	return columns(w)
}

// output calls closed when the writer fails.
type output struct {
	io.Writer
	closed func()
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil {
		o.closed()
	}
	return n, err
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && info.Name() != os.DevNull && os.Getenv("TERM") != "dumb"
}

// Every returns the time between two Views worth showing; 0: none is.
func (l *Live) Every() time.Duration {
	switch {
	case l.quiet:
		return 0
	case l.terminal:
		return terminalEvery
	}
	return plainEvery
}

// Watch calls each with every event, also of a quiet view. It is called before the first event.
func (l *Live) Watch(each func(at time.Duration, text string)) { l.watch = each }

// Event shows a line that stays.
func (l *Live) Event(at time.Duration, text string) {
	if l.watch != nil {
		l.watch(at, text)
	}
	if l.quiet {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.erase()
	text = fmt.Sprintf("%s  %s\n", clock(l.forward(at)), text)
	if l.terminal {
		text = terminal.Wrap(text, l.columns())
	}
	_, _ = io.WriteString(l.w, text)
}

// Show shows the View of a run, in the place of the one before; rate is how many events are
// applied a second.
func (l *Live) Show(v console.View, rate float64) {
	if l.quiet {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	run := *v.Run
	run.Elapsed = l.forward(run.Elapsed)
	v.Run = &run
	if !l.terminal {
		_, _ = fmt.Fprintln(l.w, Line(v))
		return
	}
	l.erase()
	block := Block(v, rate, l.columns())
	_, _ = io.WriteString(l.w, strings.Join(block, "\n")+"\n")
	l.lines = len(block)
}

// forward keeps the clock from jumping back where two say something at once. The caller holds mu.
func (l *Live) forward(at time.Duration) time.Duration {
	if at == Preparing {
		return at
	}
	l.shown = max(l.shown, at)
	return l.shown
}

// Clear takes the block away, for what is written next.
func (l *Live) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.erase()
}

// erase moves up over the block and clears to the end of the screen. [ECMA-48 8.3.22 CUU, 8.3.39
// ED]
func (l *Live) erase() {
	if l.lines > 0 {
		_, _ = fmt.Fprintf(l.w, "\x1b[%dA\x1b[J", l.lines)
		l.lines = 0
	}
}

// Block returns a View as the lines of a terminal of so many columns; rate is how many events are
// applied a second. No line is so long that it wraps, so that the block stays in place.
func Block(v console.View, rate float64, columns int) []string {
	s, p, run := first(v.Streams), first(v.Projections), v.Run
	leader := "none, waiting for the next one"
	if s.Leader != "" {
		leader = fmt.Sprintf("%s, epoch %d", s.Leader, s.Epoch)
	}
	standbys := "none"
	if names := standby(s); len(names) > 0 {
		standbys = strings.Join(names, ", ")
	}
	published := bar(value(s.Published), run.Total)
	if s.InFlight != nil {
		published = strings.TrimSpace(fmt.Sprintf("%s %d in flight", published, *s.InFlight))
	}
	lines := []string{"", row("leader", leader)}
	if s.FenceMarginMS != nil && s.FenceAfterMS != nil {
		lines = append(lines, row("fence", fmt.Sprintf("%.1f of %.1f s left", float64(*s.FenceMarginMS)/1000, float64(*s.FenceAfterMS)/1000)))
	}
	lines = append(lines,
		row("standby", standbys),
		row(came(run), fmt.Sprintf("%-8d %s", run.Inserted, bar(run.Inserted, run.Total))),
		row("published", fmt.Sprintf("%-8s %s", known(s.Published), published)),
		row("applied", fmt.Sprintf("%-8d %s %.0f/s", run.Applied, bar(run.Applied, run.Total), rate)))
	if p.P50MS != nil && p.P99MS != nil {
		lines = append(lines, row("latency", fmt.Sprintf("p50 %.1f ms, p99 %.1f ms", *p.P50MS, *p.P99MS)))
	}
	sessions := fmt.Sprintf("%s on %s", known(p.SessionsHeld), commandline.Count(len(p.Replicas), "projector"))
	if columns < narrow {
		lines = append(lines, row("lag", fmt.Sprint(lag(run))), row("sessions", sessions), row("parked", known(p.Parked)), row("dead", known(v.Queue.Dead())))
	} else {
		lines = append(lines, row("lag", fmt.Sprintf("%-8d sessions %s, parked %s, dead-lettered %s", lag(run), sessions, known(p.Parked), known(v.Queue.Dead()))))
	}
	if n := len(run.Failovers); n > 0 {
		last := run.Failovers[n-1]
		lines = append(lines, row("failover", fmt.Sprintf("%s: %.1f s until the next leader published", last.Kind, float64(last.PublishAfterMS)/1000)))
	}
	if run.Waiting != "" {
		lines = append(lines, row("waits", run.Waiting))
	}
	lines = append(lines, row("time", strings.TrimSpace(clock(run.Elapsed))))
	for i, line := range lines {
		lines[i] = cut(line, columns-1)
	}
	return lines
}

func row(name, text string) string { return fmt.Sprintf("  %-10s %s", name, text) }

// Line returns a View as one plain line.
func Line(v console.View) string {
	s, p, run := first(v.Streams), first(v.Projections), v.Run
	leader := "no leader"
	if s.Leader != "" {
		leader = fmt.Sprintf("%s leads (epoch %d)", s.Leader, s.Epoch)
	}
	return fmt.Sprintf("%s  %s, %d standing by; %s %d, published %s, applied %d, lag %d; sessions %s, parked %s, dead-lettered %s",
		clock(run.Elapsed), leader, len(standby(s)), came(run), run.Inserted, known(s.Published), run.Applied, lag(run),
		known(p.SessionsHeld), known(p.Parked), known(v.Queue.Dead()))
}

// first returns the one stream or projection of a run; it is empty before there is any.
func first[T any](all []T) (one T) {
	if len(all) > 0 {
		one = all[0]
	}
	return one
}

func standby(s console.Stream) (names []string) {
	for _, r := range s.Replicas {
		if r.Role == "standby" {
			names = append(names, r.Name)
		}
	}
	return names
}

// lag returns how many events are inserted and not applied yet. Our own change stream may be behind
// the producer's: then it is 0.
func lag(r *console.Run) int64 { return max(r.Inserted-r.Applied, 0) }

func came(r *console.Run) string {
	if r.Followed {
		return "seen"
	}
	return "inserted"
}

func clock(d time.Duration) string {
	if d == Preparing {
		return strings.Repeat(" ", 8)
	}
	return fmt.Sprintf("%7.1fs", d.Seconds())
}

func known(n *int64) string {
	if n == nil {
		return "unknown"
	}
	return fmt.Sprint(*n)
}

// value returns a number, below 0 if it is unknown.
func value(n *int64) int64 {
	if n == nil {
		return -1
	}
	return *n
}

func bar(n, total int64) string {
	const cells = 30
	if total <= 0 || n < 0 {
		return ""
	}
	full := int(min(n, total) * cells / total)
	return "[" + strings.Repeat("=", full) + strings.Repeat(" ", cells-full) + "]"
}

func cut(line string, width int) string {
	if runes := []rune(line); len(runes) > width {
		return string(runes[:max(width-1, 0)]) + "…"
	}
	return line
}
