package child

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// kept is how many of the last lines, and how many of the worst ones, are kept for a report of a
// failure.
const kept = 8

// logs receives what a process writes. All of it goes into a file; what a run needs to know is kept
// in memory.
type logs struct {
	file *os.File

	mu      sync.Mutex // guards everything below
	partial []byte
	addr    string // the health address; empty until it is known
	last    []string
	errors  []string
	fatal   string // the error of the last record of level ERROR
}

func newLogs(path string) (*logs, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create log file: %w", err)
	}
	return &logs{file: f}, nil
}

// Write never fails: a process that cannot write its log would stop, for a reason that is not its
// own.
func (l *logs) Write(p []byte) (int, error) {
	_, _ = l.file.Write(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partial = append(l.partial, p...)
	for {
		line, rest, whole := bytes.Cut(l.partial, []byte{'\n'})
		if !whole {
			return len(p), nil
		}
		l.line(line)
		l.partial = rest
	}
}

func (l *logs) line(line []byte) {
	var record struct {
		Level string `json:"level"`
		Msg   string `json:"msg"`
		Addr  string `json:"addr"`
		Error string `json:"error"`
	}
	structured := json.Unmarshal(line, &record) == nil
	if structured && record.Msg == "serving health checks" {
		l.addr = record.Addr
	}
	l.last = push(l.last, string(line))
	if record.Level == "ERROR" {
		l.fatal = cmp.Or(record.Error, record.Msg)
	}
	if record.Level == "ERROR" || record.Level == "WARN" || !structured {
		l.errors = push(l.errors, string(line))
	}
}

func push(lines []string, line string) []string {
	if len(lines) == kept {
		lines = lines[1:]
	}
	return append(lines, line)
}

// health returns the address of the health server, once the process has logged it.
func (l *logs) health() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.addr
}

// failure returns the last error that the process has logged; "" if it has logged none.
func (l *logs) failure() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}

// worst returns the last warnings and errors, or the last lines of any kind if the process never
// served and has logged none.
func (l *logs) worst() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.errors
	if len(lines) == 0 && l.addr == "" {
		lines = l.last
	}
	return append([]string(nil), lines...)
}
