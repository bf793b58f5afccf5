package wire

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
)

// Checkpoints records the writes of the checkpoints, in the order in which the storage took them.
type Checkpoints struct {
	// Accepted is how many events the broker has accepted. The test counts them.
	Accepted atomic.Int64

	writing sync.Mutex // one write in flight to the storage at a time

	mu     sync.Mutex
	writes []checker.Write // guarded by mu
	tag    string          // of the last record in MongoDB; guarded by mu
}

// arrived is called before a request is forwarded to Blob storage; answered, unless nil, when the
// storage has answered with a status; and delivered, unless nil, when the answer is passed to the
// service. A write is recorded, if the storage accepts it.
func (c *Checkpoints) arrived(u Unit, r *http.Request, body []byte) (answered func(status int) (delivered func())) {
	if u.Name != "write" || !strings.HasSuffix(r.URL.Path, ".json") {
		return nil
	}
	write := checker.Write{LeaseID: r.Header.Get("x-ms-lease-id"), Began: time.Now(), Accepted: int(c.Accepted.Load())}
	read(&write, body)
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

// read reads a record.
func read(write *checker.Write, text []byte) {
	var record struct {
		Stream    string `json:"stream"`
		Epoch     int64  `json:"epoch"`
		Leader    string `json:"leader"`
		Position  string `json:"position"`
		Published int64  `json:"published"`
	}
	if json.Unmarshal(text, &record) == nil {
		write.Stream, write.Epoch, write.Leader, write.Position, write.Published = record.Stream, record.Epoch, record.Leader, record.Position, record.Published
	}
}

// Stored records a write of a checkpoint in MongoDB, as [mongo.Server.RefuseWrites] reports it. A
// step of the lease keeps the record with its tag, and is not recorded.
func (c *Checkpoints) Stored(w mongo.Writing) {
	name, _ := w.ID.(string)
	var object struct {
		Data []byte `bson:"data"`
	}
	var leased struct {
		Tag    string          `json:"tag"`
		Lease  string          `json:"lease"`
		Record json.RawMessage `json:"record"`
	}
	if w.Collection != mongodb.Checkpoints || !strings.HasSuffix(name, ".json") || bson.Unmarshal(w.Document, &object) != nil ||
		json.Unmarshal(object.Data, &leased) != nil {
		return
	}
	write := checker.Write{LeaseID: leased.Lease, Began: time.Now(), Accepted: int(c.Accepted.Load())}
	read(&write, leased.Record)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tag != leased.Tag && write.Epoch > 0 {
		c.tag, c.writes = leased.Tag, append(c.writes, write)
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
