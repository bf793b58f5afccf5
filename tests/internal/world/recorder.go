package world

import (
	"bytes"
	"sync"
)

// Recorder keeps a log. The zero value is empty.
type Recorder struct {
	mu    sync.Mutex
	lines bytes.Buffer // guarded by mu
}

// Write adds a line, as a handler of log/slog does.
func (r *Recorder) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines.Write(line)
}

// Text returns the log so far.
func (r *Recorder) Text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines.String()
}
