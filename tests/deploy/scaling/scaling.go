// Package scaling simulates how Container Apps scales the projector: KEDA's documented algorithm, which counts messages,
// against sessions, which only one replica can have at a time. It is what the defaults in infra/app/projector.bicep are
// argued from.
//
// It is a model: replicas start after a fixed time, work is spread evenly, and Service Bus counts at once. It says which
// of two settings is better and why, not how fast a real system is.
package scaling

import (
	"slices"
	"time"
)

// Rule is the scale rule of the app.
type Rule struct {
	MessagesPerReplica int
	Min, Max           int
	Polling            time.Duration
	Cooldown           time.Duration // without messages, before the last replica stops
	Stabilization      time.Duration // a fall is followed only when it has lasted so long; 300 s in Container Apps
}

// Replica is what one replica can do.
type Replica struct {
	Start             time.Duration // from the decision to the first session
	Sessions          int           // MAX_SESSIONS
	PerSecond         int           // messages, over all of its sessions
	PerSessionASecond int           // messages of one session: its batches come one after the other
}

// Load makes the messages of a second: how many for which aggregate.
type Load func(second int) map[int]int

// Second is the state at the end of a second.
type Second struct {
	Waiting  int // messages
	Replicas int // running or starting: what is paid for
	Useful   int // of these, replicas that hold a session with messages
}

// Run simulates the given number of seconds, from no replica and no messages.
func Run(rule Rule, replica Replica, load Load, seconds int) []Second {
	s := simulation{rule: rule, replica: replica, waiting: map[int]int{}}
	result := make([]Second, 0, seconds)
	for now := range seconds {
		for aggregate, n := range load(now) {
			s.waiting[aggregate] += n
		}
		if now%int(rule.Polling.Seconds()) == 0 {
			s.scale(now)
		}
		useful := s.work(now)
		result = append(result, Second{s.total(), len(s.replicas), useful})
	}
	return result
}

type simulation struct {
	rule     Rule
	replica  Replica
	waiting  map[int]int // messages by aggregate
	replicas []running
	active   int   // the last second with messages
	wanted   []int // the answers of the formula, one a poll
}

type running struct {
	ready    int // the second from which on it works
	sessions []int
}

func (s *simulation) total() int {
	sum := 0
	for _, n := range s.waiting {
		sum += n
	}
	return sum
}

// scale is KEDA's and the autoscaler's part: ceil(messages / target) between min and max; up at once, by at most 4 or
// twice as many; down only to the largest answer of the stabilization window; to zero only after the cooldown.
func (s *simulation) scale(now int) {
	messages, current := s.total(), len(s.replicas)
	if messages > 0 {
		s.active = now
	}
	wanted := (messages + s.rule.MessagesPerReplica - 1) / s.rule.MessagesPerReplica
	s.wanted = append(s.wanted, wanted)
	window := int(s.rule.Stabilization / s.rule.Polling)
	wanted = slices.Max(s.wanted[max(0, len(s.wanted)-1-window):])
	switch {
	case current == 0 && messages > 0:
		wanted = 1 // activation; the formula counts from the next poll on
	case messages == 0 && now-s.active >= int(s.rule.Cooldown.Seconds()):
		wanted = 0
	default:
		wanted = max(wanted, min(current, 1))
		wanted = min(wanted, current+max(4, current))
	}
	wanted = min(max(wanted, s.rule.Min), s.rule.Max)
	for len(s.replicas) < wanted {
		s.replicas = append(s.replicas, running{ready: now + int(s.replica.Start.Seconds())})
	}
	s.replicas = s.replicas[:wanted] // its sessions are given back
}

// turns is how often in a second a worker can give a session back and take another: an accept costs a dozen round trips.
const turns = 4

// work is the sessions' part: a session has one holder, and one holder works on it batch after batch.
func (s *simulation) work(now int) (useful int) {
	busy := make([]bool, len(s.replicas))
	for range turns {
		s.accept(now)
		for i := range s.replicas {
			if len(s.replicas[i].sessions) > 0 {
				busy[i] = true
				s.apply(&s.replicas[i])
			}
		}
	}
	for _, b := range busy {
		if b {
			useful++
		}
	}
	return useful
}

// accept gives the sessions that wait to the replicas with free workers, one each in turn.
func (s *simulation) accept(now int) {
	held := map[int]bool{}
	for i := range s.replicas {
		for _, a := range s.replicas[i].sessions {
			held[a] = true
		}
	}
	var free []int
	for a := range s.waiting {
		if !held[a] {
			free = append(free, a)
		}
	}
	slices.Sort(free)
	for given := true; given && len(free) > 0; {
		given = false
		for i := range s.replicas {
			r := &s.replicas[i]
			if len(free) > 0 && r.ready <= now && len(r.sessions) < s.replica.Sessions {
				r.sessions, free, given = append(r.sessions, free[0]), free[1:], true
			}
		}
	}
}

// apply is one turn of one replica: its sessions share what it can do. What is done with is given back.
func (s *simulation) apply(r *running) {
	room := s.replica.PerSecond / turns
	for i, a := range r.sessions {
		share := max(room/(len(r.sessions)-i), 1)
		n := min(s.waiting[a], max(s.replica.PerSessionASecond/turns, 1), share, room)
		s.waiting[a] -= n
		room -= n
		if s.waiting[a] == 0 {
			delete(s.waiting, a)
		}
	}
	r.sessions = slices.DeleteFunc(r.sessions, func(a int) bool { return s.waiting[a] == 0 })
}

// Summary is what a run comes to.
type Summary struct {
	Peak         int     // replicas
	ReplicaHours float64 // paid for
	IdleShare    float64 // of these, without a session that had messages
	EmptySecond  int     // the first second after which nothing waits any more; -1 if something still waits at the end
	MostWaiting  int     // messages
}

// Summarize sums a run up.
func Summarize(run []Second) Summary {
	sum := Summary{EmptySecond: -1}
	var paid, useful int
	for i, s := range run {
		sum.Peak = max(sum.Peak, s.Replicas)
		paid += s.Replicas
		useful += s.Useful
		sum.MostWaiting = max(sum.MostWaiting, s.Waiting)
		if s.Waiting > 0 {
			sum.EmptySecond = -1
		} else if sum.EmptySecond < 0 {
			sum.EmptySecond = i
		}
	}
	sum.ReplicaHours = float64(paid) / 3600
	if paid > 0 {
		sum.IdleShare = 1 - float64(useful)/float64(paid)
	}
	return sum
}
