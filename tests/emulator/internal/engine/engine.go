// Package engine is the state of the embedded MongoDB: collections of versioned documents, indexes,
// transactions and the oplog. It contains no sockets, commands or cursors.
//
// Guaranteed: single-document writes are atomic; a transaction reads one snapshot and becomes
// visible at one instant or not at all; every committed write is one oplog entry, in commit order,
// with cluster times that never go back; unique indexes hold at every instant. Writers that meet a
// transaction's uncommitted document wait for it; transactions that meet one fail with
// WriteConflict.
//
// Not provided: durability and collation.
package engine

import (
	"bytes"
	"context"
	"crypto/rand"
	"slices"
	"sort"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// Options bound what the engine keeps.
type Options struct {
	OplogBytes    int           // bytes of oplog kept; default 256 MiB
	OplogEntries  int           // entries of oplog kept; default without limit
	HistoryBytes  int           // bytes of superseded versions kept for snapshot reads; default 64 MiB, no more than OplogBytes
	HistoryWindow time.Duration // age of superseded versions kept; default 300 s
	// QuietCaps: what a capped collection loses is not in the oplog, as before 5.0.
	QuietCaps bool
	// Version of the server that this one is like; zero is the newest.
	Version [2]int32
	// ShardKeys has the field by which a collection is sharded, by "database.collection".
	ShardKeys map[string]string
}

// NS names a collection.
type NS struct{ DB, Coll string }

// String returns "db.coll".
func (n NS) String() string { return n.DB + "." + n.Coll }

// Engine is safe for concurrent use.
type Engine struct {
	opts Options

	mu    sync.RWMutex // guards everything below
	colls map[NS]*Collection
	clock bson.Timestamp
	txns  map[*Txn]struct{}
	oplog oplog

	vetoes       []*veto
	history      []superseded // oldest first
	historyBytes int
	oldest       bson.Timestamp // snapshots before this are gone
}

// Collection is one collection's documents and indexes; guarded by Engine.mu.
type Collection struct {
	NS        NS
	UUID      []byte
	Options   bson.D // as given to create
	PreImages bool

	validator *validator
	view      bool   // it contains no documents: its options define what it shows
	capped    capped // the zero value: it is not
	size      int    // bytes of the documents that live

	queue   int            // how many commands wait for its exclusive lock
	creator *Txn           // the open transaction that created the collection, which is not visible to others
	born    bson.Timestamp // when it was made, or committed

	byID    map[string]*record
	ordered order
	first   *record // natural order
	last    *record
	indexes []*Index
	live    int // committed, not deleted
	seq     uint64
}

// New returns an empty engine.
func New(opts Options) *Engine {
	if opts.OplogBytes == 0 {
		opts.OplogBytes = 256 << 20
	}
	if opts.HistoryBytes == 0 {
		opts.HistoryBytes = min(64<<20, opts.OplogBytes)
	}
	if opts.HistoryWindow == 0 {
		opts.HistoryWindow = 300 * time.Second
	}
	e := &Engine{opts: opts, colls: map[NS]*Collection{}, txns: map[*Txn]struct{}{}}
	e.oplog.changed = make(chan struct{})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.log(&Entry{Kind: Noop})
	e.oldest = e.clock
	return e
}

// tick returns the next cluster time: wall seconds, and a counter within them.
func (e *Engine) tick() bson.Timestamp {
	now := uint32(time.Now().Unix())
	if now > e.clock.T {
		e.clock = bson.Timestamp{T: now, I: 1}
	} else {
		e.clock.I++
	}
	return e.clock
}

// Now returns the cluster time of the last committed operation.
func (e *Engine) Now() bson.Timestamp {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.clock
}

// Heartbeat writes the no-op that a replica set's primary writes every ten
// seconds, when one is due, so that an idle set's cluster time advances.
func (e *Engine) Heartbeat() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Now().Unix()-int64(e.clock.T) >= 10 {
		e.log(&Entry{Kind: Noop})
	}
}

// Confirm writes the no-op by which a primary confirms with a majority what a linearizable read has
// returned.
func (e *Engine) Confirm() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.log(&Entry{Kind: Noop})
}

// Elsewhere returns a cluster time at which another shard wrote: later than every entry, and no
// entry has it. ok is false if there is an entry at position at or behind it.
func (e *Engine) Elsewhere(at uint64) (now bson.Timestamp, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if at < e.oplog.base+uint64(len(e.oplog.entries)) {
		return e.clock, false
	}
	return e.tick(), true
}

// NewUUID returns a random version 4 UUID.
func NewUUID() []byte {
	b := make([]byte, 16)
	rand.Read(b)
	b[6], b[8] = b[6]&0x0F|0x40, b[8]&0x3F|0x80
	return b
}

// create adds a collection and its _id index; the caller holds the lock.
func (e *Engine) create(ns NS, options bson.D) (*Collection, error) {
	if err := checkName(ns); err != nil {
		return nil, err
	}
	c := &Collection{NS: ns, UUID: NewUUID(), Options: options, byID: map[string]*record{}}
	if err := c.setOptions(options); err != nil {
		return nil, err
	}
	e.colls[ns] = c
	e.created(c)
	return c, nil
}

// created logs a new collection, with the indexes a transaction gave it.
func (e *Engine) created(c *Collection) {
	defer func() { c.born = e.clock }()
	if c.view {
		e.log(&Entry{Kind: Create, NS: c.NS, View: true, Description: c.Options})
		return
	}
	defer func() {
		for _, ix := range c.indexes {
			e.indexed(c, ix)
		}
	}()
	e.log(&Entry{Kind: Create, NS: c.NS, UUID: c.UUID, Description: bson.D{{Key: "idIndex", Value: bson.D{{Key: "v", Value: int32(2)}, {Key: "key", Value: bson.D{{Key: "_id", Value: int32(1)}}}, {Key: "name", Value: "_id_"}}}}})
}

// setOptions applies the options of create or collMod; on an error the collection is unchanged.
func (c *Collection) setOptions(options bson.D) error {
	validator, err := newValidator(options)
	if err != nil {
		return err
	}
	limits, err := newCapped(options)
	if err != nil {
		return err
	}
	c.Options, c.validator, c.capped, c.PreImages = options, validator, limits, false
	_, c.view = value.Get(options, "viewOn")
	if v, ok := value.Get(options, "changeStreamPreAndPostImages"); ok {
		d, _ := v.(bson.D)
		on, _ := value.Get(d, "enabled")
		c.PreImages = on == true
	}
	return nil
}

// ensure finds or creates a collection for a write.
func (e *Engine) ensure(ns NS, txn *Txn) (*Collection, error) {
	c, err := e.coll(ns, txn)
	switch {
	case err != nil:
		return nil, err
	case c == nil && txn == nil:
		return e.create(ns, nil)
	case c == nil:
		return e.createIn(txn, ns, nil)
	}
	return c, c.writable()
}

// coll returns a collection as a transaction sees it, or as all clients do if txn is nil; nil if it
// does not exist.
func (e *Engine) coll(ns NS, txn *Txn) (*Collection, error) {
	if txn == nil {
		return e.colls[ns], nil
	}
	if c := txn.colls[ns]; c != nil {
		return c, nil
	}
	c := e.colls[ns]
	if c != nil && txn.Strict && value.CompareTimestamps(c.born, txn.snapshot) > 0 {
		return nil, mongoerr.New(mongoerr.SnapshotUnavailable, "Unable to read from a snapshot due to pending collection catalog changes to collection '%s'; please retry the operation.", ns)
	}
	return c, nil
}

// createIn adds a collection that others see when the transaction commits; the caller holds the
// lock.
func (e *Engine) createIn(txn *Txn, ns NS, options bson.D) (*Collection, error) {
	if err := checkName(ns); err != nil {
		return nil, err
	}
	c := &Collection{NS: ns, UUID: NewUUID(), Options: options, byID: map[string]*record{}, creator: txn}
	if err := c.setOptions(options); err != nil {
		return nil, err
	}
	txn.colls[ns], txn.touched[c] = c, true
	return c, nil
}

// Create makes a collection, in a transaction if txn is given. Creating it again
// with the same options is no error outside one.
func (e *Engine) Create(ctx context.Context, ns NS, txn *Txn, options bson.D) error {
	return e.locked(ctx, txn, func() error {
		c, err := e.coll(ns, txn)
		if err != nil {
			return err
		}
		if c != nil {
			if txn == nil && value.Equal(append(bson.D{}, c.Options...), append(bson.D{}, options...)) {
				return nil
			}
			return mongoerr.New(mongoerr.NamespaceExists, "Collection %s already exists.", ns)
		}
		if txn != nil {
			_, err = e.createIn(txn, ns, options)
		} else {
			_, err = e.create(ns, options)
		}
		return err
	})
}

// Modify runs collMod: changed takes the place of the options of the same names.
func (e *Engine) Modify(ctx context.Context, ns NS, changed bson.D) error {
	return e.locked(ctx, nil, func() error {
		c := e.colls[ns]
		if c == nil {
			return mongoerr.New(mongoerr.NamespaceNotFound, "ns does not exist: %s", ns)
		}
		if err := e.untouched(c); err != nil {
			return err
		}
		options := append(bson.D{}, c.Options...)
		for _, o := range changed {
			options = value.Set(options, o.Key, o.Value)
		}
		if err := c.setOptions(options); err != nil {
			return err
		}
		if c.view {
			e.log(&Entry{Kind: Modify, NS: ns, View: true, Description: c.Options})
			return nil
		}
		e.log(&Entry{Kind: Modify, NS: ns, UUID: c.UUID})
		return nil
	})
}

// Drop removes a collection; false when there was none. It waits for
// transactions that have written to it.
func (e *Engine) Drop(ctx context.Context, ns NS) (bool, error) {
	found := false
	err := e.locked(ctx, nil, func() error {
		c := e.colls[ns]
		if c == nil {
			return nil
		}
		if err := e.untouched(c); err != nil {
			return err
		}
		found = true
		delete(e.colls, ns)
		if c.view {
			e.log(&Entry{Kind: Drop, NS: ns, View: true})
			return nil
		}
		e.log(&Entry{Kind: Drop, NS: ns, UUID: c.UUID})
		return nil
	})
	return found, err
}

func (e *Engine) untouched(c *Collection) error {
	for t := range e.txns {
		if t.touched[c] {
			return errWait{t.done, c}
		}
	}
	return nil
}

// DropDatabase drops every collection of a database, then the database.
func (e *Engine) DropDatabase(ctx context.Context, db string) error {
	all := e.Collections(db)
	slices.SortFunc(all, func(a, b Info) int { return bytes.Compare(a.UUID, b.UUID) }) // the order is not part of the contract
	for _, c := range all {
		if _, err := e.Drop(ctx, c.NS); err != nil {
			return err
		}
	}
	return e.locked(ctx, nil, func() error {
		e.log(&Entry{Kind: DropDatabase, NS: NS{DB: db}})
		return nil
	})
}

// Rename moves a collection, over an existing one if dropTarget.
func (e *Engine) Rename(ctx context.Context, from, to NS, dropTarget bool) error {
	return e.locked(ctx, nil, func() error {
		c, target := e.colls[from], e.colls[to]
		switch {
		case c == nil:
			return mongoerr.New(mongoerr.NamespaceNotFound, "Source collection %s does not exist", from)
		case target != nil && !dropTarget:
			return mongoerr.New(mongoerr.NamespaceExists, "target namespace exists")
		case from == to:
			return mongoerr.New(mongoerr.IllegalOperation, "Can't rename a collection to itself")
		}
		if err := checkName(to); err != nil {
			return err
		}
		if err := e.untouched(c); err != nil {
			return err
		}
		if target != nil {
			if err := e.untouched(target); err != nil {
				return err
			}
		}
		delete(e.colls, from)
		c.NS = to
		e.colls[to] = c
		description := bson.D{{Key: "to", Value: bson.D{{Key: "db", Value: to.DB}, {Key: "coll", Value: to.Coll}}}}
		if target != nil {
			description = append(description, bson.E{Key: "dropTarget", Value: bson.Binary{Subtype: 4, Data: target.UUID}})
		}
		e.log(&Entry{Kind: Rename, NS: from, To: to, UUID: c.UUID, Description: description})
		return nil
	})
}

// Info describes a collection.
type Info struct {
	NS      NS
	UUID    []byte
	Options bson.D
	Count   int
	Indexes []*Index
	Size    int  // bytes of its documents
	View    bool // its options define of what
	Capped  bool
}

// Collections lists a database's collections by name; all of them when db is "".
func (e *Engine) Collections(db string) []Info {
	e.mu.RLock()
	defer e.mu.RUnlock()
	var out []Info
	for ns, c := range e.colls {
		if db == "" || ns.DB == db {
			out = append(out, c.info())
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].NS.String() < out[j].NS.String() })
	return out
}

func (c *Collection) info() Info {
	return Info{c.NS, c.UUID, append(bson.D{}, c.Options...), c.live, append([]*Index{}, c.indexes...), c.size, c.view, c.capped != (capped{})}
}

// Lookup describes one collection; false if it does not exist.
func (e *Engine) Lookup(ns NS) (Info, bool) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	c := e.colls[ns]
	if c == nil {
		return Info{}, false
	}
	return c.info(), true
}
