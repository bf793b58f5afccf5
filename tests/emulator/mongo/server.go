// Package mongo is an embedded MongoDB: a one-node replica set that speaks the
// wire protocol of MongoDB 8.0 to the unmodified driver, in process and in memory.
//
// What it does, it does as a server would: CRUD with the server's error shapes,
// transactions with snapshot isolation, retryable writes that are applied once,
// change streams over a bounded oplog with sortable resume tokens. What it does
// not do is refused by an error that names the command, stage, operator or option.
//
// Layers: wire (bytes and messages) → this package (connections, dispatch, one
// file a family of commands) → engine (pure state) → query, value, keystring.
//
// The data lives in memory; Save and Restore carry it over a restart.
//
// Not provided: authentication, TLS, compression, a journal, further nodes,
// time-series collections. README.md lists what is refused.
package mongo

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/engine"
)

// Options configure a server; the zero value is usable.
type Options struct {
	Logger       *slog.Logger
	ReplicaSet   string // default "rs0"
	Host         string // advertised in hello; default the listener's address
	OplogBytes   int    // default 256 MiB
	OplogEntries int    // default without limit

	// DocumentDB makes change streams poorer, as Azure DocumentDB's are; see documentdb.go.
	DocumentDB bool

	// NoSplit makes the server as one before 6.0.9: it does not know $changeStreamSplitLargeEvent.
	NoSplit bool
	// NoSplitCode is the error code that NoSplit answers with; 0 is MongoDB's (40324). Amazon
	// DocumentDB's is 304.
	NoSplitCode int32

	// Version of MongoDB that the server acts as; the zero value is 8.0.4. It determines which
	// features are known, the form of change events, the wire protocol, and the defaults of the
	// options below. See [ParseVersion].
	Version [3]int32

	// AcceptLostTokens makes the server accept, on a collection's stream, an event's resume token
	// that the oplog no longer holds, as 4.4 was seen to: it answers nothing, with fresh high-water
	// marks, and fails only when the collection changes again.
	AcceptLostTokens bool
	// NoHello makes the server as one before 4.4.2, which knows isMaster alone.
	NoHello bool

	// TokenVersion is that of resume tokens: 1 as servers before 7.0 write them, or 2. By default
	// it follows from Version, and in 6.0 from the stream: with the stage that splits large events
	// it is 2. See also [Server.SetTokenVersion].
	TokenVersion int

	// Mongos makes the server speak as the mongos of a sharded cluster; nil: as the member of a
	// replica set.
	Mongos *Mongos

	// TransactionLifetime is how long a transaction may stay open; default 60 s.
	TransactionLifetime time.Duration
}

// Server is one replica set member. It is always primary, except after StepDown; and of a majority,
// except after Isolate.
type Server struct {
	opts     Options
	log      *slog.Logger
	eng      *engine.Engine
	sessions *sessions
	cursors  *cursors
	fail     failpoints
	ttl      ttl
	started  time.Time

	requests atomic.Int32 // ids of replies
	tokens   atomic.Int32 // version of the tokens of streams that are opened from now on

	mu       sync.Mutex
	host     string
	conns    map[*conn]struct{}
	lastConn int32
	down     time.Time     // not primary until then
	stepped  chan struct{} // closed at the next step-down
	topology topology
	minority *minority // nil, except of a stale primary
}

// New makes a server with an empty data set.
func New(opts Options) *Server {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.ReplicaSet == "" {
		opts.ReplicaSet = "rs0"
	}
	if opts.TransactionLifetime == 0 {
		opts.TransactionLifetime = time.Minute
	}
	opts.likeVersion()
	var shardKeys map[string]string
	if opts.Mongos != nil {
		shardKeys = opts.Mongos.ShardKeys
	}
	s := &Server{
		opts: opts, log: opts.Logger, host: opts.Host, started: time.Now(),
		eng:     engine.New(engine.Options{OplogBytes: opts.OplogBytes, OplogEntries: opts.OplogEntries, QuietCaps: opts.before(5, 0, 0), ShardKeys: shardKeys, Version: [2]int32{opts.Version[0], opts.Version[1]}}),
		conns:   map[*conn]struct{}{},
		stepped: make(chan struct{}),

		topology: topology{process: bson.NewObjectID(), changed: make(chan struct{})},
	}
	s.tokens.Store(int32(opts.TokenVersion))
	s.sessions = newSessions(s.eng)
	s.cursors = newCursors()
	return s
}

// URI returns a connection string for a server that listens on addr.
func URI(addr string) string { return "mongodb://" + addr + "/?replicaSet=rs0" }

// URI returns a connection string for this server that listens on addr.
func (s *Server) URI(addr string) string {
	if s.opts.Mongos != nil {
		return "mongodb://" + addr + "/"
	}
	return URI(addr)
}

// Run serves connections of l until ctx ends or l fails. When it returns, l and
// every connection are closed and everything started is joined. The data stays: a
// later Run serves it again.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	if s.opts.Host == "" {
		s.mu.Lock()
		s.host = l.Addr().String()
		s.mu.Unlock()
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { l.Close() })
	var wg sync.WaitGroup
	defer func() {
		cancel()
		wg.Wait()
		stop()
		l.Close()
		s.eng.AbortAll()
		s.stopTTL()
	}()
	s.startTTL()
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		wg.Go(func() {
			if err := s.ServeConn(ctx, c); err != nil {
				s.log.Debug("connection ended", "error", err)
			}
		})
	}
}

// StepDown makes the server answer as a secondary for d: writes and reads fail
// with the codes and labels that make drivers retry, waiting change streams end
// with a resumable error, open transactions are aborted. Connections stay.
func (s *Server) StepDown(d time.Duration) {
	s.mu.Lock()
	s.down = time.Now().Add(d)
	if s.opts.Mongos == nil {
		s.topology.down = true
		s.topology.bump()
	}
	close(s.stepped)
	s.stepped = make(chan struct{})
	s.mu.Unlock()
	s.eng.AbortAll()
	s.cursors.killStreams(errSteppedDown)
}

// primary reports whether writes are accepted, and returns a channel that is closed at the next
// step-down.
func (s *Server) primary() (bool, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !time.Now().Before(s.down), s.stepped
}

// DropConnections closes every connection at once, as a network failure does.
// Cursors and sessions stay.
func (s *Server) DropConnections() {
	s.mu.Lock()
	all := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		all = append(all, c)
	}
	s.mu.Unlock()
	for _, c := range all {
		c.net.Close()
	}
}

// ErrSnapshot is a snapshot that cannot be restored: not one, of another version, or cut off.
var ErrSnapshot = engine.ErrSnapshot

// Save writes the data and the oplog as of one moment, for Restore. Sessions,
// cursors, fail points and open transactions are not part of it.
func (s *Server) Save(w io.Writer) error { return s.eng.Save(w) }

// Restore starts this server, before it serves a client, with the saved state of another: change
// streams resume with their tokens, or get the error that the oplog no longer has them. A retryable
// write from before is not recognised and would be applied again. [ErrSnapshot] means that r is not
// a whole snapshot.
func (s *Server) Restore(r io.Reader) error {
	if err := s.eng.Restore(r); err != nil {
		return err
	}
	s.armTTL()
	return nil
}

// OpenStreams returns the number of change streams that clients have open.
func (s *Server) OpenStreams() int { return s.cursors.streams() }

// KillCursors removes every open cursor: getMore answers CursorNotFound.
func (s *Server) KillCursors() { s.cursors.killAll() }

// SetTokenVersion makes change streams have resume tokens of that version (1, or 2) from now on, as
// an upgrade of the server does: open ones end with a resumable error. Tokens of version 2 are
// taken to resume from but by a server that is like one before 6.0 and does not write them.
func (s *Server) SetTokenVersion(version int) {
	s.tokens.Store(int32(version))
	s.cursors.killStreams(errSteppedDown)
}

// ExpireImages lets the pre- and post-images of every change until now be gone, as
// expireAfterSeconds does after a while.
func (s *Server) ExpireImages() { s.eng.ExpireImages() }

// ForgetChanges makes the changes of a database until now unreadable for change streams, as in an
// oplog that is too small for the time in which a stream was not read. Other databases keep theirs.
func (s *Server) ForgetChanges(database string) { s.eng.ForgetChanges(database) }

// LoseReplies lets the next n executions of a command take effect and then closes
// the connection instead of replying: the outcome that makes a client retry.
func (s *Server) LoseReplies(command string, n int) { s.fail.lose(command, n) }

// Writing is a write of one document that is about to happen.
type Writing struct {
	Database, Collection string
	// ID is the document's _id.
	ID any
	// Document is the new version; nil: the document is deleted.
	Document bson.Raw
	// Before is how many writes its transaction holds already; -1 outside of a transaction.
	Before int
}

// RefuseWrites fails every write of a document for which of returns an error code other than 0,
// until end is called. Other writes of the same command succeed, unless a transaction fails as a
// whole. of must be quick and must not call the server.
func (s *Server) RefuseWrites(of func(Writing) (code int32)) (end func()) {
	return s.eng.Veto(func(w engine.Writing) int32 {
		return of(Writing{Database: w.NS.DB, Collection: w.NS.Coll, ID: w.ID, Document: w.Document, Before: w.Before})
	})
}

func (s *Server) advertised() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.host
}
