package sessions

import (
	"container/list"
	"time"
)

// demand judges whether sessions wait for a worker. The broker does not say, and a worker that looks for a session may be
// about to get one: in a flood of short sessions many look at any moment. But one that has looked in vain for as long as a
// session without messages would be kept shows that there are workers enough to keep every one that comes in that time.
//
// Being wrong costs round trips, never order: a session is given back too early, or kept while another one waits.
type demand struct {
	keep    time.Duration // a session without messages
	seekers list.List     // of time.Time: since when each worker without a session has looked for one, oldest first
}

// seek notes that a worker looks for a session from now on, until found.
func (d *demand) seek(now time.Time) *list.Element { return d.seekers.PushBack(now) }

// found notes that a worker has a session.
func (d *demand) found(seeker *list.Element) { d.seekers.Remove(seeker) }

// met says whether no session waits, as far as can be known.
func (d *demand) met(now time.Time) bool {
	oldest := d.seekers.Front()
	return oldest != nil && now.Sub(oldest.Value.(time.Time)) >= d.keep
}
