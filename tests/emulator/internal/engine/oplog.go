package engine

import (
	"sort"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// Kind is the kind of operation that an oplog entry records.
type Kind uint8

// Kinds of oplog entries.
const (
	Noop Kind = iota
	Insert
	Update
	Replace
	Delete
	Create
	CreateIndexes
	DropIndexes
	Modify
	Drop
	Rename
	DropDatabase
)

// String returns the operationType of the entry's change event.
func (k Kind) String() string {
	return [...]string{"noop", "insert", "update", "replace", "delete", "create", "createIndexes", "dropIndexes", "modify", "drop", "rename", "dropDatabase"}[k]
}

// Entry is one committed operation. It is never changed once logged, so readers
// keep it without a lock.
type Entry struct {
	At          bson.Timestamp
	TxnOp       int // index among the entries that share At
	Wall        time.Time
	Kind        Kind
	NS          NS
	To          NS
	UUID        []byte
	ID          bson.RawValue // of the document
	ShardKey    bson.D        // of the document, before an update or a delete; nil if its collection is not sharded
	Full        bson.Raw      // the document afterwards
	Pre         bson.Raw      // the document before, if the collection keeps pre-images
	Images      bool          // the collection keeps pre- and post-images
	Change      query.Change  // of an update
	Description bson.D
	View        bool     // it is about a view: an entry of system.views, which streams show that ask for expanded events
	LSID        bson.Raw // with TxnNumber: of a transaction
	TxnNumber   int64
}

func (x *Entry) size() int { return len(x.Full) + len(x.Pre) + 256 }

// oplog is a bounded queue of entries with absolute positions.
type oplog struct {
	entries   []*Entry
	base      uint64 // position of entries[0]
	bytes     int
	truncated bool
	changed   chan struct{} // closed at the next append
	watched   bool          // a reader holds changed

	forgotten   map[string]uint64 // by database, the position before which streams cannot read
	imagesUntil bson.Timestamp    // images of entries until then have expired
}

// log stamps a single-operation entry and appends it.
func (e *Engine) log(x *Entry) { x.At = e.tick(); e.append(x) }

// append adds an entry that has its time, drops old ones, and wakes readers.
func (e *Engine) append(x *Entry) {
	o := &e.oplog
	x.Wall = time.Now()
	o.entries = append(o.entries, x)
	o.bytes += x.size()
	for len(o.entries) > 1 && (o.bytes > e.opts.OplogBytes || (e.opts.OplogEntries > 0 && len(o.entries) > e.opts.OplogEntries)) {
		o.bytes -= o.entries[0].size()
		o.entries[0] = nil
		o.entries = o.entries[1:]
		o.base++
		o.truncated = true
	}
	if o.watched {
		close(o.changed)
		o.changed = make(chan struct{})
		o.watched = false
	}
}

// ReadOplog copies entries from position at on into buf; last is the time of the
// newest entry there is. ok is false when the position has fallen off the oplog.
func (e *Engine) ReadOplog(at uint64, buf []*Entry) (n int, last bson.Timestamp, ok bool) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	o := &e.oplog
	if at < o.base {
		return 0, e.clock, false
	}
	if i := at - o.base; i < uint64(len(o.entries)) {
		n = copy(buf, o.entries[i:])
	}
	return n, e.clock, true
}

// Changed returns a channel that is closed at the next append, and the position after the last
// entry. Take it, then read, then wait.
func (e *Engine) Changed() (<-chan struct{}, uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.oplog.watched = true
	return e.oplog.changed, e.oplog.base + uint64(len(e.oplog.entries))
}

// Seek finds the first entry at or after a time. ok is false when entries of that
// time may have been dropped.
func (e *Engine) Seek(at bson.Timestamp) (position uint64, ok bool) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	o := &e.oplog
	if o.truncated && value.CompareTimestamps(at, o.entries[0].At) < 0 {
		return 0, false
	}
	i := sort.Search(len(o.entries), func(i int) bool { return value.CompareTimestamps(o.entries[i].At, at) >= 0 })
	return o.base + uint64(i), true
}

// FirstTime returns the time of the oldest entry.
func (e *Engine) FirstTime() bson.Timestamp {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.oplog.entries[0].At
}

// ForgetChanges makes the changes of a database until now unreadable for change streams.
func (e *Engine) ForgetChanges(database string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.oplog.forgotten == nil {
		e.oplog.forgotten = map[string]uint64{}
	}
	e.oplog.forgotten[database] = e.oplog.base + uint64(len(e.oplog.entries))
}

// Forgot reports whether the changes of a database from a position on are no longer readable.
func (e *Engine) Forgot(database string, position uint64) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return position < e.oplog.forgotten[database]
}

// ExpireImages expires the images of every change until now, as expireAfterSeconds does after a
// while.
func (e *Engine) ExpireImages() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.oplog.imagesUntil = e.clock
}

// KeepsImages reports whether change streams can read the documents before and after an entry.
func (e *Engine) KeepsImages(x *Entry) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return x.Images && value.CompareTimestamps(x.At, e.oplog.imagesUntil) > 0
}

// Oplog returns a copy of all entries, oldest first.
func (e *Engine) Oplog() []*Entry {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return append([]*Entry(nil), e.oplog.entries...)
}
