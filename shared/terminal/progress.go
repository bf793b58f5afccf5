package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	// showAfter is how long work may take before its progress is shown.
	showAfter = 2 * time.Second
	redraw    = 200 * time.Millisecond
	cells     = 24
)

// Progress shows the progress of work that takes longer than two seconds in one line of a terminal,
// and removes the line in the end. Without a terminal it shows nothing. It is safe for concurrent
// use, and nil shows nothing.
type Progress struct {
	out  io.Writer
	stop chan struct{}
	over sync.WaitGroup

	mu    sync.Mutex // guards everything below, and the order on out
	began time.Time
	what  string
	done  int64
	total int64 // 0: unknown
	first int64 // the value of done at since
	since time.Time
	drawn bool // the line is on the screen
}

// StartProgress returns a Progress on a terminal, or nil if the file is not a terminal.
func StartProgress(out io.Writer, what string) *Progress {
	file, ok := out.(*os.File)
	if !ok || !Is(file) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return start(out, what)
}

func start(out io.Writer, what string) *Progress {
	p := &Progress{out: out, stop: make(chan struct{}), began: time.Now(), what: what}
	p.over.Go(p.run)
	return p
}

func (p *Progress) run() {
	select {
	case <-p.stop:
		return
	case <-time.After(showAfter):
	}
	ticker := time.NewTicker(redraw)
	defer ticker.Stop()
	for {
		p.draw()
		select {
		case <-p.stop:
			return
		case <-ticker.C:
		}
	}
}

// Set changes the text and the numbers of the line; a total of 0 is unknown.
func (p *Progress) Set(what string, done, total int64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if what != p.what || total != p.total && p.total == 0 || done < p.done {
		p.first, p.since = done, time.Now()
	}
	p.what, p.done, p.total = what, done, total
}

// End removes the line.
func (p *Progress) End() {
	if p == nil {
		return
	}
	close(p.stop)
	p.over.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

// Through returns a writer to the same terminal that removes the line before it writes.
func (p *Progress) Through(out io.Writer) io.Writer {
	if p == nil {
		return out
	}
	return through{p, out}
}

type through struct {
	p   *Progress
	out io.Writer
}

func (t through) Write(text []byte) (int, error) {
	t.p.mu.Lock()
	defer t.p.mu.Unlock()
	t.p.clear()
	return t.out.Write(text)
}

func (p *Progress) draw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drawn = true
	_, _ = fmt.Fprintf(p.out, "\r\x1b[K%s", line(p.what, p.done, p.total, time.Since(p.began), p.rate()))
}

// rate returns how much is done in a second; 0 if that is not known. The caller holds mu.
func (p *Progress) rate() float64 {
	if p.since.IsZero() || p.done == p.first {
		return 0
	}
	return float64(p.done-p.first) / max(time.Since(p.since), time.Second).Seconds()
}

// clear removes the line, if there is one. The caller holds mu. [ECMA-48 8.3.41 EL]
func (p *Progress) clear() {
	if p.drawn {
		_, _ = io.WriteString(p.out, "\r\x1b[K")
		p.drawn = false
	}
}

// line returns the progress in words, short enough for a terminal of 80 columns.
func line(what string, done, total int64, took time.Duration, rate float64) string {
	const most = 30
	if runes := []rune(what); len(runes) > most {
		what = string(runes[:most-1]) + "…"
	}
	text := Printable(what)
	switch {
	case total > 0:
		full := int(min(done, total) * cells / total)
		text += fmt.Sprintf(" [%s%s] %d of %d", strings.Repeat("=", full), strings.Repeat(" ", cells-full), done, max(done, total))
		if rate > 0 && done < total {
			left := time.Duration(float64(total-done) / rate * float64(time.Second))
			return text + fmt.Sprintf(", %.0f/s, %s to go", rate, left.Round(time.Second))
		}
	case done > 0:
		text += fmt.Sprintf(" %d", done)
	}
	return text + fmt.Sprintf(", %s", took.Round(time.Second))
}

// Is reports whether a file is a terminal, so that its output is for people who watch. Any other
// character device except the null device counts as a terminal, too.
func Is(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
