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

	"github.com/sluice-cdc/sluice/shared/terminal"
)

// Snapshot is what there is to see at one moment.
type Snapshot struct {
	Elapsed   time.Duration // since the first insert, or [Preparing]
	Leader    string        // empty: there is no leader
	Epoch     int64
	Standbys  []string
	Followed  bool // others insert: what is seen of it
	Inserted  int64
	Total     int64 // 0: no end is planned
	Published int64 // below 0: unknown
	Applied   int64
	Rate      float64 // applied a second, of late
	Sessions  int64   // held by the projectors
	Projector int     // projectors that answer
	Parked    int64
	Dead      int64 // dead-lettered; below 0: unknown
}

func (s Snapshot) came() string {
	if s.Followed {
		return "seen"
	}
	return "inserted"
}

// Lag returns how many events are inserted and not applied yet. Our own change stream may be behind
// the producer's: then it is 0.
func (s Snapshot) Lag() int64 { return max(s.Inserted-s.Applied, 0) }

// The times between two refreshments.
const (
	terminalEvery = 200 * time.Millisecond
	plainEvery    = 2 * time.Second
)

// wide is the width of a terminal that does not report one, and narrow the width below which the
// block has one count a line.
const wide, narrow = 80, 60

// Live shows events and snapshots; it is safe for use by several goroutines.
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

// Every is the time between two snapshots worth showing; 0: none is.
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

// Show shows a snapshot, in the place of the one before.
func (l *Live) Show(s Snapshot) {
	if l.quiet {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Elapsed = l.forward(s.Elapsed)
	if !l.terminal {
		_, _ = fmt.Fprintln(l.w, Line(s))
		return
	}
	l.erase()
	block := Block(s, l.columns())
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

// Block is a snapshot as the lines of a terminal of so many columns. No line is so long that it
// wraps, so that the block stays in place.
func Block(s Snapshot, columns int) []string {
	leader := "none, waiting for the next one"
	if s.Leader != "" {
		leader = fmt.Sprintf("%s, epoch %d", s.Leader, s.Epoch)
	}
	standbys := "none"
	if len(s.Standbys) > 0 {
		standbys = strings.Join(s.Standbys, ", ")
	}
	lines := []string{
		"",
		fmt.Sprintf("  %-10s %s", "leader", leader),
		fmt.Sprintf("  %-10s %s", "standby", standbys),
		fmt.Sprintf("  %-10s %-8d %s", s.came(), s.Inserted, bar(s.Inserted, s.Total)),
		fmt.Sprintf("  %-10s %-8s %s", "published", known(s.Published), bar(s.Published, s.Total)),
		fmt.Sprintf("  %-10s %-8d %s %.0f/s", "applied", s.Applied, bar(s.Applied, s.Total), s.Rate),
	}
	sessions := fmt.Sprintf("%d on %s", s.Sessions, count(s.Projector, "projector"))
	if columns < narrow {
		lines = append(lines,
			fmt.Sprintf("  %-10s %d", "lag", s.Lag()),
			fmt.Sprintf("  %-10s %s", "sessions", sessions),
			fmt.Sprintf("  %-10s %d", "parked", s.Parked),
			fmt.Sprintf("  %-10s %s", "dead", known(s.Dead)))
	} else {
		lines = append(lines, fmt.Sprintf("  %-10s %-8d sessions %s, parked %d, dead-lettered %s", "lag", s.Lag(), sessions, s.Parked, known(s.Dead)))
	}
	lines = append(lines, fmt.Sprintf("  %-10s %s", "time", strings.TrimSpace(clock(s.Elapsed))))
	for i, line := range lines {
		lines[i] = cut(line, columns-1)
	}
	return lines
}

// Line is a snapshot as one plain line.
func Line(s Snapshot) string {
	leader := "no leader"
	if s.Leader != "" {
		leader = fmt.Sprintf("%s leads (epoch %d)", s.Leader, s.Epoch)
	}
	return fmt.Sprintf("%s  %s, %d standing by; %s %d, published %s, applied %d, lag %d; sessions %d, parked %d, dead-lettered %s",
		clock(s.Elapsed), leader, len(s.Standbys), s.came(), s.Inserted, known(s.Published), s.Applied, s.Lag(), s.Sessions, s.Parked, known(s.Dead))
}

func clock(d time.Duration) string {
	if d == Preparing {
		return strings.Repeat(" ", 8)
	}
	return fmt.Sprintf("%7.1fs", d.Seconds())
}

func count(n int, unit string) string {
	if n != 1 {
		unit += "s"
	}
	return fmt.Sprintf("%d %s", n, unit)
}

func known(n int64) string {
	if n < 0 {
		return "unknown"
	}
	return fmt.Sprint(n)
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
