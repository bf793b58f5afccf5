package broker

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/filter"
)

const (
	subscriptionsPart = "/Subscriptions/"
	deadLetterPart    = "/$DeadLetterQueue"
	transferPart      = "/$Transfer/$DeadLetterQueue"
)

// Broker is a namespace.
type Broker struct {
	// paths is replaced, never changed, so that finding an entity takes no lock.
	paths    atomic.Pointer[paths]
	change   sync.Mutex // serialises the writers of paths
	observer atomic.Pointer[func(Accepted)]
	decode   atomic.Pointer[func(*Payload) filter.Message]
	earlier  atomic.Pointer[func()]
	idles    atomic.Bool  // something is deleted when it is idle
	lag      atomic.Int64 // between a session's release and its next accept, in nanoseconds
}

// paths finds everything with an address, by lower-case path: the service ignores case.
type paths struct {
	inboxes  map[string]*Inbox
	entities map[string]*Entity // dead-letter queues included
}

// New builds the entities of a configuration.
func New(cfg Config) (*Broker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("check entities: %w", err)
	}
	b := &Broker{}
	b.paths.Store(&paths{inboxes: make(map[string]*Inbox), entities: make(map[string]*Entity)})
	for _, q := range cfg.Queues {
		if err := b.CreateQueue(q); err != nil {
			return nil, fmt.Errorf("create queue %s: %w", q.Name, err)
		}
	}
	for _, t := range cfg.Topics {
		if err := b.CreateTopic(t); err != nil {
			return nil, fmt.Errorf("create topic %s: %w", t.Name, err)
		}
	}
	return b, nil
}

// DecodeWith sets the function that reads the properties for filters from a payload. Without it,
// filters see no properties.
func (b *Broker) DecodeWith(f func(*Payload) filter.Message) { b.decode.Store(&f) }

func (b *Broker) notifyEarlier() {
	if f := b.earlier.Load(); f != nil {
		(*f)()
	}
}

// LagReleases sets how long a session cannot be accepted again after its release.
func (b *Broker) LagReleases(d time.Duration) { b.lag.Store(int64(d)) }

// OnEarlierDeadline sets a function that is called when NextDeadline may have moved forward.
// It is called with locks held and must not block.
func (b *Broker) OnEarlierDeadline(f func()) { b.earlier.Store(&f) }

// Observe sets a function that is called for every message a send brings, in the order the
// entity accepted them. It is called with locks held: it must be quick and must not call back.
func (b *Broker) Observe(f func(Accepted)) {
	if f == nil {
		b.observer.Store(nil)
		return
	}
	b.observer.Store(&f)
}

// Inbox finds the queue or topic with the address.
func (b *Broker) Inbox(address string) (*Inbox, error) {
	if in := b.paths.Load().inboxes[strings.ToLower(address)]; in != nil {
		return in, nil
	}
	if b.paths.Load().entities[strings.ToLower(address)] != nil {
		return nil, refuse(NotAllowed, fmt.Sprintf("Messages cannot be sent to '%s'.", address))
	}
	return nil, b.unknown(address)
}

// Entity finds the queue, subscription or dead-letter queue with the address.
func (b *Broker) Entity(address string) (*Entity, error) {
	key := strings.ToLower(address)
	if e := b.paths.Load().entities[key]; e != nil {
		return e, nil
	}
	if in := b.paths.Load().inboxes[key]; in != nil {
		return nil, refuse(NotAllowed, fmt.Sprintf("Messages cannot be received from topic '%s'.", address))
	}
	return nil, b.unknown(address)
}

// Exists reports whether anything has the address.
func (b *Broker) Exists(address string) bool { return b.paths.Load().has(address) }

func (b *Broker) unknown(address string) error {
	return refuse(NotFound, fmt.Sprintf("The messaging entity '%s' could not be found.", address))
}

// NextDeadline returns the first time at which Advance has something to do.
func (b *Broker) NextDeadline() (time.Time, bool) {
	var first time.Time
	note := func(t time.Time, ok bool) {
		if ok && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	for _, e := range b.paths.Load().entities {
		e.mu.Lock()
		note(e.deadlines.next())
		note(e.expiries.next())
		e.mu.Unlock()
	}
	for _, in := range b.paths.Load().inboxes {
		in.mu.Lock()
		note(in.deadlines.next())
		in.mu.Unlock()
	}
	now := time.Now()
	gone, next := b.idle(now)
	note(next, !next.IsZero())
	note(now, len(gone) > 0)
	return first, !first.IsZero()
}

// Advance handles locks, waits, messages and schedules that are due, and deletes idle entities.
// Every other method handles what is due in its own entity, so Advance only makes it visible
// earlier.
func (b *Broker) Advance() {
	for _, in := range b.paths.Load().inboxes {
		in.lock()
		in.unlock()
	}
	for _, e := range b.paths.Load().entities {
		e.lock()
		e.unlock()
	}
	b.deleteIdle()
}

// RefuseSends makes the next n sends to an inbox fail with server-busy.
func (in *Inbox) RefuseSends(n int) {
	in.lock()
	defer in.unlock()
	in.busy = n
}
