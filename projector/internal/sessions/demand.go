package sessions

import (
	"container/list"
	"time"
)

// demand estimates whether sessions wait for a worker. The broker does not report that, and a
// worker that seeks a session may be about to get one: with many short sessions, many workers seek
// one at any moment. But once a worker has found none for as long as an idle session would be kept,
// there are enough workers for every session that arrives in that time.
//
// A wrong estimate costs round trips, never order: a session is released too early, or kept while
// another one waits.
type demand struct {
	keep    time.Duration // a session without messages
	seekers list.List     // of time.Time: since when each worker without a session has sought one, oldest first
}

// seek records that a worker seeks a session from now on, until found.
func (d *demand) seek(now time.Time) *list.Element { return d.seekers.PushBack(now) }

// found notes that a worker has a session.
func (d *demand) found(seeker *list.Element) { d.seekers.Remove(seeker) }

// met reports whether no session waits, as far as can be known.
func (d *demand) met(now time.Time) bool {
	oldest := d.seekers.Front()
	return oldest != nil && now.Sub(oldest.Value.(time.Time)) >= d.keep
}
