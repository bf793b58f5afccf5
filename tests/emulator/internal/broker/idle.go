package broker

import "time"

// idle returns the entities that have been idle for too long, and when the next one will be; zero:
// never. Without traffic, a queue or topic counts as used while it has scheduled messages, and each
// entity behind it while it has a receiver.
func (b *Broker) idle(now time.Time) (gone []string, next time.Time) {
	if !b.idles.Load() {
		return nil, time.Time{}
	}
	note := func(path string, used time.Time, busy bool, after time.Duration) {
		at := used.Add(after)
		switch {
		case after <= 0 || busy:
		case !at.After(now):
			gone = append(gone, path)
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	p := b.paths.Load()
	for _, in := range p.inboxes {
		in.mu.Lock()
		used, busy, after, outs := in.used, len(in.schedule) > 0, in.cfg.AutoDeleteOnIdle, in.outs
		in.mu.Unlock()
		if after <= 0 {
			continue
		}
		for _, e := range outs {
			u, open := e.lastUse()
			busy = busy || open
			if u.After(used) {
				used = u
			}
		}
		note(in.path, used, busy, after)
	}
	for _, e := range p.entities {
		if after := time.Duration(e.idleAfter.Load()); after > 0 {
			used, open := e.lastUse()
			note(e.path, used, open, after)
		}
	}
	return gone, next
}

// deleteIdle removes idle entities with their content.
func (b *Broker) deleteIdle() {
	gone, _ := b.idle(time.Now())
	for _, path := range gone {
		_ = b.Delete(path) // another goroutine may have deleted it, or what it belonged to
	}
}

// mayIdle records that there are entities that can become idle.
func (b *Broker) mayIdle(after time.Duration) {
	if after > 0 {
		b.idles.Store(true)
		b.notifyEarlier()
	}
}

// lastUse returns when the entity was used last, and whether it has a receiver.
func (e *Entity) lastUse() (at time.Time, open bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.used, len(e.receivers) > 0
}
