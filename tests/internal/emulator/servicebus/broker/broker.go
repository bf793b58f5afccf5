package broker

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

const (
	subscriptionsPart = "/Subscriptions/"
	deadLetterPart    = "/$DeadLetterQueue"
	transferPart      = "/$Transfer/$DeadLetterQueue"
)

// Broker is a namespace. The set of entities does not change after New.
type Broker struct {
	inboxes  map[string]*Inbox  // by lower-case path: the service ignores case
	entities map[string]*Entity // by lower-case path, dead-letter queues included
	observer atomic.Pointer[func(Accepted)]
	earlier  atomic.Pointer[func()]
}

// New builds the entities of a configuration.
func New(cfg Config) (*Broker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("check entities: %w", err)
	}
	b := &Broker{inboxes: make(map[string]*Inbox), entities: make(map[string]*Entity)}
	for _, q := range cfg.Queues {
		e := newEntity(q.Name, q.Outbound, q.DefaultMessageTimeToLive)
		b.addEntity(e)
		b.addInbox(newInbox(q.Name, q.Inbound, false, []*Entity{e}, &b.observer))
	}
	for _, t := range cfg.Topics {
		outs := make([]*Entity, 0, len(t.Subscriptions))
		for _, s := range t.Subscriptions {
			ttl := s.DefaultMessageTimeToLive
			if d := t.DefaultMessageTimeToLive; d > 0 && (ttl == 0 || ttl > d) {
				ttl = d
			}
			e := newEntity(t.Name+subscriptionsPart+s.Name, s.Outbound, ttl)
			b.addEntity(e)
			outs = append(outs, e)
		}
		b.addInbox(newInbox(t.Name, t.Inbound, true, outs, &b.observer))
	}
	return b, nil
}

func (b *Broker) addEntity(e *Entity) {
	for _, x := range []*Entity{e, e.deadQueue} {
		x.deadlines.earlier = b.notifyEarlier
		b.entities[strings.ToLower(x.path)] = x
	}
}

func (b *Broker) addInbox(in *Inbox) {
	in.deadlines.earlier = b.notifyEarlier
	b.inboxes[strings.ToLower(in.path)] = in
}

func (b *Broker) notifyEarlier() {
	if f := b.earlier.Load(); f != nil {
		(*f)()
	}
}

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
	if in := b.inboxes[strings.ToLower(address)]; in != nil {
		return in, nil
	}
	if b.entities[strings.ToLower(address)] != nil {
		return nil, refuse(NotAllowed, fmt.Sprintf("Messages cannot be sent to '%s'.", address))
	}
	return nil, b.unknown(address)
}

// Entity finds the queue, subscription or dead-letter queue with the address.
func (b *Broker) Entity(address string) (*Entity, error) {
	key := strings.ToLower(address)
	if e := b.entities[key]; e != nil {
		return e, nil
	}
	if strings.HasSuffix(key, strings.ToLower(transferPart)) {
		// Not "not-implemented": the SDKs would reset the connection and try again.
		return nil, refuse(NotAllowed, fmt.Sprintf("'%s': transfer dead-letter queues are not supported by this emulator.", address))
	}
	if in := b.inboxes[key]; in != nil {
		return nil, refuse(NotAllowed, fmt.Sprintf("Messages cannot be received from topic '%s'.", address))
	}
	return nil, b.unknown(address)
}

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
	for _, e := range b.entities {
		e.mu.Lock()
		note(e.deadlines.next())
		e.mu.Unlock()
	}
	for _, in := range b.inboxes {
		in.mu.Lock()
		note(in.deadlines.next())
		in.mu.Unlock()
	}
	return first, !first.IsZero()
}

// Advance lets locks, waits and schedules that are due run out. Every other method does the
// same for its entity, so this only decides how soon somebody hears of it.
func (b *Broker) Advance() {
	for _, in := range b.inboxes {
		in.lock()
		in.unlock()
	}
	for _, e := range b.entities {
		e.lock()
		e.unlock()
	}
}

// RefuseSends makes the next n sends to an inbox fail with server-busy.
func (in *Inbox) RefuseSends(n int) {
	in.lock()
	defer in.unlock()
	in.busy = n
}
