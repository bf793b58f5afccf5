package wire

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-cdc/sluice/tests/internal/checker"
)

// Checkpoints records the writes of the checkpoints, in the order in which the storage took them.
type Checkpoints struct {
	// Accepted is how many events the broker has accepted. The test counts them.
	Accepted atomic.Int64

	writing sync.Mutex // one write in flight to the storage at a time

	mu     sync.Mutex
	writes []checker.Write // guarded by mu
}

var _ BlobObserver = (*Checkpoints)(nil)

// Arrived records a write, if the storage accepts it.
func (c *Checkpoints) Arrived(u Unit, r *http.Request, body []byte) func(int) func() {
	if u.Name != "write" || !strings.HasSuffix(r.URL.Path, ".json") {
		return nil
	}
	write := checker.Write{LeaseID: r.Header.Get("x-ms-lease-id"), Began: time.Now(), Accepted: int(c.Accepted.Load())}
	var record struct {
		Stream    string `json:"stream"`
		Epoch     int64  `json:"epoch"`
		Leader    string `json:"leader"`
		Position  string `json:"position"`
		Published int64  `json:"published"`
	}
	if json.Unmarshal(body, &record) == nil {
		write.Stream, write.Epoch, write.Leader, write.Position, write.Published = record.Stream, record.Epoch, record.Leader, record.Position, record.Published
	}
	c.writing.Lock()
	return func(status int) func() {
		defer c.writing.Unlock()
		if status != http.StatusCreated {
			return nil
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		n := len(c.writes)
		c.writes = append(c.writes, write)
		return func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.writes[n].Answered = true
		}
	}
}

// Epoch returns the highest epoch that was written.
func (c *Checkpoints) Epoch() (highest int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.writes {
		highest = max(highest, w.Epoch)
	}
	return highest
}

// Last returns the last write of a stream's checkpoint; it is zero without one.
func (c *Checkpoints) Last(stream string) (last checker.Write) {
	for _, w := range c.All() {
		if w.Stream == stream {
			last = w
		}
	}
	return last
}

// All returns a copy of the writes: whether a write was answered may become known later.
func (c *Checkpoints) All() []checker.Write {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.writes)
}
