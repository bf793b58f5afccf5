package broker

// ExpireLocks lets every lock on messages and sessions run out now, with all that follows:
// failed deliveries, and holders that hear of it. It returns how many locks there were.
func (e *Entity) ExpireLocks() int {
	now := e.lock()
	defer e.unlock()
	n := 0
	for _, m := range inSequence(e.locked) {
		n++
		e.stats.redelivered++
		e.unlockMessage(m)
		e.failDelivery(m, now)
	}
	for _, s := range e.sessions {
		if s.holder != nil {
			n++
			e.expireSession(s, now)
		}
	}
	e.wakeHungry()
	return n
}
