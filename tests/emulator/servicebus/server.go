package servicebus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/amqp"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/atomapi"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/broker"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus/entity"
)

// What describes the entities has a package of its own, which every part of the server shares.
type (
	// Config lists the entities of the namespace.
	Config = entity.Config
	// Queue is a queue.
	Queue = entity.Queue
	// Topic is a topic with its subscriptions.
	Topic = entity.Topic
	// Subscription is a subscription of a topic.
	Subscription = entity.Subscription
	// Inbound are the properties of an entity that takes messages.
	Inbound = entity.Inbound
	// Rule selects messages for a subscription.
	Rule = entity.Rule
	// Outbound are the properties of an entity messages are received from.
	Outbound = entity.Outbound
	// Stats are the counts of one entity.
	Stats = broker.Stats
)

// Options configure a Server. The zero value is usable.
type Options struct {
	// Logger may be nil.
	Logger *slog.Logger
	// MaxMessageBytes limits a message and a batch; default 256 KiB.
	MaxMessageBytes uint64
	// OmitBatchLimit leaves the limit of a batch out of the answer to a sender's attach, as the
	// service did until the spring of 2026. The limit holds nevertheless.
	OmitBatchLimit bool
	// IdleTimeout is demanded of clients; default 4 min.
	IdleTimeout time.Duration
	// Ask is how often every AMQP session of a client is asked for its state by a flow with echo;
	// default 2 min.
	Ask time.Duration
	// Terse leaves out the initial delivery count of receivers' links.
	Terse bool
	// IdleAccepts makes a link that waits for a session, or has one, not hold its connection open:
	// what the service does while a link waits is not known.
	IdleAccepts bool
	// AcceptTimeout is how long a request for any session waits if the client does not set it;
	// default 65 s, as measured on the service.
	AcceptTimeout time.Duration
	// Keys of the namespace; default RootKey.
	Keys []Key
	// Premium makes the administration answer as a namespace of that tier does.
	Premium bool
	// MaxConnections is how many connections the namespace takes at a time; 0: as many as come. The
	// service takes 1,000 in the Standard tier, Microsoft's emulator 10.
	MaxConnections int
	// Credits is how many credits a second the namespace has; 0: unlimited. The service's Standard
	// tier has 1,000. Operations beyond them are refused with server-busy, error code 50009;
	// messages are delivered later, and requests over HTTP cost credits and are not refused.
	Credits int
}

// Server is a namespace.
type Server struct {
	broker *broker.Broker
	api    *atomapi.API
	opts   Options
	log    *slog.Logger
	clock  clock

	traced     int64 // names this server in the texts of its errors
	operations operations
	credits    credits
	loseAcks   atomic.Int64
	answer     atomic.Pointer[answered]    // to the next sends
	single     atomic.Pointer[[]*singled]  // to the sends of some messages
	faults     atomic.Pointer[[]*injected] // in force; the list is replaced, never changed
	accepts    atomic.Int32                // an AcceptAnswer

	mu      sync.Mutex // guards conns, refused, and who replaces faults and single
	conns   map[net.Conn]*client
	refused int
}

// New builds the namespace. It starts nothing.
func New(cfg Config, opts Options) (*Server, error) {
	b, err := broker.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("new service bus: %w", err)
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.MaxMessageBytes == 0 {
		opts.MaxMessageBytes = DefaultMaxMessageBytes
	}
	if opts.AcceptTimeout <= 0 {
		opts.AcceptTimeout = 65 * time.Second
	}
	if len(opts.Keys) == 0 {
		opts.Keys = []Key{RootKey()}
	}
	b.DecodeWith(newView)
	s := &Server{broker: b, api: atomapi.New(b, cfg, "sluice-service-bus", opts.Premium), opts: opts, log: opts.Logger, conns: make(map[net.Conn]*client)}
	s.clock.broker = b
	s.credits.perSecond = opts.Credits
	s.traced = time.Now().UnixNano()
	return s, nil
}

// AddSubscription makes a subscription of a topic, as the administration does: it gets what is sent
// from now on.
func (s *Server) AddSubscription(topic string, subscription Subscription) error {
	return s.broker.CreateSubscription(topic, subscription)
}

// RemoveSubscription deletes a subscription of a topic with what waits in it, as the administration
// does.
func (s *Server) RemoveSubscription(topic, name string) error {
	return s.broker.Delete(topic + "/Subscriptions/" + name)
}

// Run serves l until ctx ends or l fails. On return l and all connections are closed and every
// goroutine is joined. It returns nil when ctx ended.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer l.Close()
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept connection: %w", err)
		}
		wg.Go(func() {
			if err := s.ServeConn(ctx, c); err != nil {
				s.log.Debug("connection ended", "error", err)
			}
		})
	}
}

// ServeConn serves one connection until it closes or ctx ends. It owns c.
func (s *Server) ServeConn(ctx context.Context, c net.Conn) error {
	cl := &client{server: s, conn: c, claims: newClaims(), cbs: make(map[bool]bool)}
	var refuse *amqp.Error
	s.mu.Lock()
	s.conns[c] = cl
	if most := s.opts.MaxConnections; most > 0 && len(s.conns) > most {
		s.refused++
		refuse = &amqp.Error{
			Condition:   amqp.CondResourceLimit,
			Description: fmt.Sprintf("The number of active connections exceeds the %d that the namespace may have.", most),
		}
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	s.broker.Advance() // the clock stood still without a connection
	defer s.clock.use()()
	defer cl.claims.close()
	defer cl.later.close()
	ctx, forced := context.WithCancelCause(ctx)
	defer forced(nil)
	cl.watchLinks(forced)
	err := amqp.Serve(ctx, c, amqp.Options{
		ContainerID: containerID(), IdleTimeout: s.opts.IdleTimeout, Ask: s.opts.Ask, Terse: s.opts.Terse, Trace: s.trace,
		Logger: s.log, OnAttach: cl.attach, Refuse: refuse, Plain: cl.signIn,
	})
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("serve service bus: %w", err)
	}
	return nil
}

// trace returns what the service adds to the text of every error.
func (s *Server) trace() string {
	return fmt.Sprintf(" TrackingId:%016x_G1, SystemTracker:gateway, Timestamp:%s", s.traced, time.Now().UTC().Format("2006-01-02T15:04:05"))
}

// containerID returns a name as the gateways of the service have them.
func containerID() string { return strings.ReplaceAll(uuid.NewString(), "-", "") + "_G1" }

// Refused returns how many connections were too many for [Options.MaxConnections].
func (s *Server) Refused() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// Stats returns the counts of a queue, a topic, "topic/Subscriptions/name" or one of their
// "/$DeadLetterQueue"; zero for an unknown entity.
func (s *Server) Stats(entity string) Stats { return s.broker.Stats(entity) }

// Message is a dead-lettered message, for reports.
type Message struct {
	SequenceNumber         int64
	EnqueuedSequenceNumber int64 // of the topic
	MessageID              string
	SessionID              string
	Reason                 string
	Description            string
	// Encoded is the AMQP message as the broker keeps it. It must not be changed.
	Encoded []byte
}

// PeekDeadLetters returns up to limit messages of the entity's dead-letter queue in order; none
// for an unknown entity.
func (s *Server) PeekDeadLetters(entity string, limit int) []Message {
	e, err := s.broker.Entity(entity + "/$DeadLetterQueue")
	if err != nil {
		return nil
	}
	s.broker.Advance() // without a connection the clock does not run
	var out []Message
	for _, d := range e.Peek(-1, limit, nil) {
		out = append(out, Message{
			SequenceNumber: d.SequenceNumber, EnqueuedSequenceNumber: d.EnqueuedSequenceNumber, MessageID: d.MessageID, SessionID: d.SessionID,
			Reason: d.DeadLetter.Reason, Description: d.DeadLetter.Description, Encoded: d.Body,
		})
	}
	return out
}
