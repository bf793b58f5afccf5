package broker

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus/entity"
)

// edit replaces the set of addresses.
func (b *Broker) edit(f func(*paths) error) error {
	b.change.Lock()
	defer b.change.Unlock()
	old := b.paths.Load()
	next := &paths{inboxes: maps.Clone(old.inboxes), entities: maps.Clone(old.entities)}
	if err := f(next); err != nil {
		return err
	}
	b.paths.Store(next)
	return nil
}

func (p *paths) has(path string) bool {
	key := strings.ToLower(path)
	return p.inboxes[key] != nil || p.entities[key] != nil
}

func (p *paths) addEntity(b *Broker, e *Entity) {
	for _, x := range []*Entity{e, e.deadQueue, e.transferDead} {
		x.broker = b
		x.deadlines.earlier, x.expiries.earlier = b.notifyEarlier, b.notifyEarlier
		p.entities[strings.ToLower(x.path)] = x
	}
}

func (p *paths) addInbox(b *Broker, in *Inbox) {
	in.deadlines.earlier = b.notifyEarlier
	p.inboxes[strings.ToLower(in.path)] = in
}

func exists(path string) error {
	return refuse(NotAllowed, fmt.Sprintf("The messaging entity '%s' exists already.", path))
}

// CreateQueue adds a queue.
func (b *Broker) CreateQueue(q Queue) error {
	if err := (Config{Queues: []Queue{q}}).Validate(); err != nil {
		return err
	}
	return b.edit(func(p *paths) error {
		if p.has(q.Name) {
			return exists(q.Name)
		}
		e := newEntity(q.Name, q.Outbound, q.DefaultMessageTimeToLive, q.EnablePartitioning)
		in := newInbox(b, q.Name, q.Inbound)
		in.outs, in.sessions, e.inbox = []*Entity{e}, q.RequiresSession, in
		p.addEntity(b, e)
		p.addInbox(b, in)
		b.mayIdle(q.AutoDeleteOnIdle)
		return nil
	})
}

// CreateTopic adds a topic and its subscriptions.
func (b *Broker) CreateTopic(t Topic) error {
	if err := (Config{Topics: []Topic{t}}).Validate(); err != nil {
		return err
	}
	err := b.edit(func(p *paths) error {
		if p.has(t.Name) {
			return exists(t.Name)
		}
		in := newInbox(b, t.Name, t.Inbound)
		in.isTopic = true
		p.addInbox(b, in)
		b.mayIdle(t.AutoDeleteOnIdle)
		return nil
	})
	for _, s := range t.Subscriptions {
		if err == nil {
			err = b.CreateSubscription(t.Name, s)
		}
	}
	return err
}

// CreateSubscription adds a subscription, which receives the messages that are sent from then on.
func (b *Broker) CreateSubscription(topic string, s Subscription) error {
	if err := (Config{Topics: []Topic{{Name: topic, Subscriptions: []Subscription{s}}}}).Validate(); err != nil {
		return err
	}
	return b.edit(func(p *paths) error {
		in := p.inboxes[strings.ToLower(topic)]
		if in == nil || !in.isTopic {
			return b.unknown(topic)
		}
		path := in.path + subscriptionsPart + s.Name
		if p.has(path) {
			return exists(path)
		}
		in.lock()
		defer in.unlock()
		e := newEntity(path, s.Outbound, capTTL(s.DefaultMessageTimeToLive, in.cfg.DefaultMessageTimeToLive), in.cfg.EnablePartitioning)
		e.rules, e.ruleErrors = s.Rules, s.DeadLetteringOnFilterErrors
		e.idleAfter.Store(int64(s.AutoDeleteOnIdle))
		b.mayIdle(s.AutoDeleteOnIdle)
		p.addEntity(b, e)
		in.outs = append(slices.Clone(in.outs), e)
		return nil
	})
}

// UpdateInbound changes what may change of a queue or topic: time to live, status, window.
func (b *Broker) UpdateInbound(path string, cfg Inbound) error {
	if err := cfg.Validate(path); err != nil {
		return err
	}
	in, err := b.Inbox(path)
	if err != nil {
		return err
	}
	in.used = in.lock()
	defer in.unlock()
	in.cfg.AutoDeleteOnIdle = cfg.AutoDeleteOnIdle
	b.mayIdle(cfg.AutoDeleteOnIdle)
	in.cfg.DefaultMessageTimeToLive, in.cfg.SendDisabled = cfg.DefaultMessageTimeToLive, cfg.SendDisabled
	if in.history != nil && cfg.DuplicateDetectionWindow > 0 {
		in.cfg.DuplicateDetectionWindow = cfg.DuplicateDetectionWindow
		in.history.window = cfg.DuplicateDetectionWindow
	}
	return nil
}

// UpdateOutbound changes what may change of a queue or subscription: everything but sessions.
// Locks that are held keep their time.
func (b *Broker) UpdateOutbound(path string, s Subscription) error {
	if err := errors.Join(s.Outbound.Validate(path), entity.ValidateIdle(path, s.AutoDeleteOnIdle)); err != nil {
		return err
	}
	e, err := b.Entity(path)
	if err != nil {
		return err
	}
	e.used = e.lock()
	defer e.unlock()
	if e.inbox == nil { // a queue's is its inbox's
		e.idleAfter.Store(int64(s.AutoDeleteOnIdle))
		b.mayIdle(s.AutoDeleteOnIdle)
	}
	c := &e.cfg
	if c.LockDuration = s.LockDuration; c.LockDuration == 0 {
		c.LockDuration = entity.DefaultLockDuration
	}
	if c.MaxDeliveryCount = s.MaxDeliveryCount; c.MaxDeliveryCount == 0 {
		c.MaxDeliveryCount = DefaultMaxDeliveryCount
	}
	c.DeadLetteringOnMessageExpiration = s.DeadLetteringOnMessageExpiration
	c.ForwardTo, c.ForwardDeadLetteredMessagesTo = s.ForwardTo, s.ForwardDeadLetteredMessagesTo
	c.ReceiveDisabled = s.ReceiveDisabled
	e.ttl = s.DefaultMessageTimeToLive
	e.ruleErrors = s.DeadLetteringOnFilterErrors
	if s.ReceiveDisabled {
		e.evict(refuse(EntityDisabled, descEntityDisabled))
	}
	return nil
}

// SetRules replaces the rules of a subscription, for what is sent from now on.
func (b *Broker) SetRules(path string, rules []Rule) error {
	e, err := b.Entity(path)
	if err != nil {
		return err
	}
	e.used = e.lock()
	defer e.unlock()
	e.rules = rules
	return nil
}

// Delete removes a queue, a topic with its subscriptions, or a subscription, with everything in it.
// Its receivers are closed with an error.
func (b *Broker) Delete(path string) error {
	var gone []*Entity
	err := b.edit(func(p *paths) error {
		key := strings.ToLower(path)
		if in := p.inboxes[key]; in != nil {
			delete(p.inboxes, key)
			in.lock()
			in.deleted = true
			gone = append(gone, in.outs...)
			in.unlock()
		} else if e := p.entities[key]; e != nil {
			topic, _, _ := strings.Cut(key, strings.ToLower(subscriptionsPart))
			if in := p.inboxes[topic]; in != nil {
				in.lock()
				in.outs = slices.DeleteFunc(slices.Clone(in.outs), func(x *Entity) bool { return x == e })
				in.unlock()
			}
			gone = append(gone, e)
		} else {
			return b.unknown(path)
		}
		for _, e := range gone {
			for _, x := range []*Entity{e, e.deadQueue, e.transferDead} {
				delete(p.entities, strings.ToLower(x.path))
			}
		}
		return nil
	})
	for _, e := range gone {
		for _, x := range []*Entity{e, e.deadQueue, e.transferDead} {
			x.lock()
			x.deleted = true
			x.evict(refuse(NotFound, fmt.Sprintf("The messaging entity '%s' could not be found.", x.path)))
			x.unlock()
		}
	}
	return err
}

// evict closes every receiver with an error.
func (e *Entity) evict(why *Error) {
	now := time.Now()
	for r := range e.receivers {
		delete(e.receivers, r)
		r.closed = true
		waiting := r.waiting != nil && e.cfg.RequiresSession && r.sess == nil
		if r.waiting != nil {
			e.hungry.Remove(r.waiting)
			e.waiters.Remove(r.waiting)
			r.waiting = nil
		}
		if r.sess != nil {
			e.releaseSession(r.sess, now, false)
		}
		if waiting {
			e.after = append(e.after, func() { r.Accepted(SessionGrant{}, why) })
		} else {
			e.after = append(e.after, func() { r.Lost(why) })
		}
	}
}

// capTTL returns the shorter of two times to live; 0 stands for no limit.
func capTTL(a, b time.Duration) time.Duration {
	if b > 0 && (a == 0 || a > b) {
		return b
	}
	return a
}
