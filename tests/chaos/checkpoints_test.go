package chaos

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-cdc/sluice/tests/chaos/internal/wire"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
)

// checkpoints records the writes of the checkpoint, in the order in which the storage took them.
type checkpoints struct {
	accepted atomic.Int64 // messages that the broker has accepted
	writing  sync.Mutex   // one write on its way to the storage at a time

	mu     sync.Mutex
	writes []checker.Write // guarded by mu
}

var _ wire.BlobObserver = (*checkpoints)(nil)

// Arrived records a write, if the storage takes it.
func (c *checkpoints) Arrived(u wire.Unit, r *http.Request, body []byte) func(int) func() {
	if u.Name != "write" || !strings.HasSuffix(r.URL.Path, ".json") {
		return nil
	}
	write := checker.Write{LeaseID: r.Header.Get("x-ms-lease-id"), Began: time.Now(), Accepted: int(c.accepted.Load())}
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

// epoch is the highest that was written.
func (c *checkpoints) epoch() (highest int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.writes {
		highest = max(highest, w.Epoch)
	}
	return highest
}

// all is a copy: that a write was answered may be learned later.
func (c *checkpoints) all() []checker.Write {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.writes)
}
