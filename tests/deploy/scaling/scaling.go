// Package scaling simulates how Container Apps scales the projector. It combines KEDA's documented
// algorithm, which counts messages, with sessions, each of which one replica holds, with the
// processor of a replica and the credits of the tier. The defaults in infra/app/projector.bicep are
// justified by it.
//
// It is a model: replicas start after a fixed time, work is spread evenly, Service Bus counts at
// once, and a throttled client gets its share of the credits. It shows which of two settings is
// better and why, not how fast a real system is.
package scaling

import (
	"maps"
	"math"
	"slices"
	"time"
)

// Rule is the scale rule of the app.
type Rule struct {
	MessagesPerReplica int
	Min, Max           int
	Polling            time.Duration
	Cooldown           time.Duration // without messages, before the last replica stops
	Stabilization      time.Duration // a decrease is followed only after it has lasted so long; 300 s in Container Apps
}

// Replica is the capacity of one replica.
type Replica struct {
	Start     time.Duration // from the decision to the first session
	Sessions  int           // MAX_SESSIONS
	Processor time.Duration // a second
	PerAccept time.Duration // of processor, to accept and release a session
	PerEvent  time.Duration // of processor
	Batch     int           // messages of a session applied at once
	PerBatch  time.Duration // the time that a session waits for the services, whatever the size of the batch
}

// Tier is the capacity of Service Bus.
type Tier struct {
	Name    string
	Credits int // a second; 0: unlimited
}

// The costs in credits. That an accept costs one is an assumption.
const (
	sendCredits    = 2 // the message and the subscription's filter
	receiveCredits = 1
	acceptCredits  = 1
)

// Load returns the changes of a second: how many of which aggregate. The producer sends them as
// fast as the tier allows.
type Load func(second int) map[int]int

// Second is the state at the end of a second.
type Second struct {
	Waiting   int  // changes that are not applied: in Service Bus, or not sent yet
	Made      int  // changes that were made in this second
	Replicas  int  // running or starting, and therefore paid for
	Useful    int  // of these, those that hold a session with messages
	Throttled bool // more credits were requested than there are
}

// Run simulates the given number of seconds, starting with the minimum of replicas and no messages.
func Run(tier Tier, rule Rule, replica Replica, load Load, seconds int) []Second {
	s := simulation{tier: tier, rule: rule, replica: replica}
	for range rule.Min {
		s.replicas = append(s.replicas, running{})
	}
	result := make([]Second, 0, seconds)
	for now := range seconds {
		made, before := load(now), s.queued+s.behind
		for _, aggregate := range slices.Sorted(maps.Keys(made)) {
			s.unsent = append(s.unsent, change{aggregate, made[aggregate]})
			s.behind += made[aggregate]
		}
		if now%int(rule.Polling.Seconds()) == 0 {
			s.scale(now)
		}
		came := s.queued + s.behind - before
		useful := s.work(now)
		result = append(result, Second{s.queued + s.behind, came, len(s.replicas), useful, s.throttled})
	}
	return result
}

type simulation struct {
	tier      Tier
	rule      Rule
	replica   Replica
	unsent    []change // changes in the source that are not in Service Bus, in order
	behind    int      // their number
	waiting   []int    // messages by aggregate
	queued    int      // all of them
	held      []bool   // by aggregate, whether a replica has its session
	replicas  []running
	throttled bool  // in the last second
	used      int   // credits that receiving used in the last turn
	active    int   // the last second in which messages were counted
	wanted    []int // the results of the formula, one for each poll
}

type change struct{ aggregate, n int }

type running struct {
	processor time.Duration // left in this turn
	ready     int           // the second from which it works
	sessions  []int
}

// scale is the part of KEDA and the autoscaler: ceil(messages / target) between min and max; up at
// once, by at most 4 or to twice as many; down only to the largest result within the stabilization
// window; to zero only after the cooldown.
func (s *simulation) scale(now int) {
	messages, current := s.queued, len(s.replicas)
	if s.throttled {
		messages = 0 // a throttled namespace answers with "empty dynamic information" only
	}
	if messages > 0 {
		s.active = now
	}
	wanted := (messages + s.rule.MessagesPerReplica - 1) / s.rule.MessagesPerReplica
	s.wanted = append(s.wanted, wanted)
	window := int(s.rule.Stabilization / s.rule.Polling)
	wanted = slices.Max(s.wanted[max(0, len(s.wanted)-1-window):])
	switch {
	case current == 0 && messages > 0:
		wanted = 1 // activation; the formula applies from the next poll on
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
	for _, ended := range s.replicas[wanted:] {
		for _, a := range ended.sessions {
			s.held[a] = false
		}
	}
	s.replicas = s.replicas[:wanted]
}

// turns is how many times a second a worker can release a session and accept another.
const turns = 4

// work simulates one second: the producer sends, and sessions are accepted and worked on, each
// within the credits of the tier. Receiving gets twice what it used last, at least a tenth and at
// most half of all; the producer gets the rest.
func (s *simulation) work(now int) (useful int) {
	busy := make([]bool, len(s.replicas))
	for range turns {
		credits := s.tier.Credits / turns
		if s.tier.Credits == 0 {
			credits = math.MaxInt32
		}
		asked := s.behind * sendCredits
		credits -= s.send(min(asked, credits-min(max(2*s.used, credits/10), credits/2)))
		left := credits
		for i := range s.replicas {
			s.replicas[i].processor = s.replica.Processor / turns
		}
		s.accept(now, &left)
		for i := range s.replicas {
			if len(s.replicas[i].sessions) > 0 {
				busy[i] = true
				s.apply(&s.replicas[i], &left)
			}
		}
		s.used = credits - left
		s.throttled = len(s.unsent) > 0 || left < acceptCredits+receiveCredits // at the end of the second
	}
	for _, b := range busy {
		if b {
			useful++
		}
	}
	return useful
}

// send sends as many changes as the credits allow, in order, and returns how many credits it used.
func (s *simulation) send(credits int) (used int) {
	for room := credits / sendCredits; room > 0 && len(s.unsent) > 0; {
		c := &s.unsent[0]
		n := min(c.n, room)
		for len(s.waiting) <= c.aggregate {
			s.waiting, s.held = append(s.waiting, 0), append(s.held, false)
		}
		s.waiting[c.aggregate] += n
		s.queued += n
		s.behind -= n
		c.n -= n
		room -= n
		used += n * sendCredits
		if c.n == 0 {
			s.unsent = s.unsent[1:]
		}
	}
	return used
}

// accept assigns the waiting sessions to the replicas with free workers, one each in turn.
func (s *simulation) accept(now int, credits *int) {
	if !slices.ContainsFunc(s.replicas, func(r running) bool { return s.accepts(&r, now, *credits) }) {
		return
	}
	var free []int // no more than can be accepted
	for a := 0; a < len(s.waiting) && len(free) < len(s.replicas)*s.replica.Sessions; a++ {
		if s.waiting[a] > 0 && !s.held[a] {
			free = append(free, a)
		}
	}
	for given := true; given && len(free) > 0; {
		given = false
		for i := range s.replicas {
			r := &s.replicas[i]
			if len(free) > 0 && s.accepts(r, now, *credits) {
				r.processor -= s.replica.PerAccept
				*credits -= acceptCredits
				s.held[free[0]] = true
				r.sessions, free, given = append(r.sessions, free[0]), free[1:], true
			}
		}
	}
}

// accepts reports whether a replica can take one more session now, and can make progress with it.
func (s *simulation) accepts(r *running, now, credits int) bool {
	return r.ready <= now && len(r.sessions) < s.replica.Sessions &&
		r.processor >= s.replica.PerAccept+s.replica.PerEvent && credits >= acceptCredits+receiveCredits
}

// apply is one turn of one replica: its sessions share its processor. A session without messages is
// released.
func (s *simulation) apply(r *running, credits *int) {
	batches := max(int(time.Second/turns/s.replica.PerBatch), 1)
	for i, a := range r.sessions {
		share := int(r.processor / s.replica.PerEvent)
		if i+1 < len(r.sessions) {
			share = min(share, max(share/(len(r.sessions)-i), 1))
		}
		n := min(s.waiting[a], batches*s.replica.Batch, share, *credits/receiveCredits)
		s.waiting[a] -= n
		s.queued -= n
		*credits -= n * receiveCredits
		r.processor -= time.Duration(n) * s.replica.PerEvent
		s.held[a] = s.waiting[a] > 0
	}
	r.sessions = slices.DeleteFunc(r.sessions, func(a int) bool { return s.waiting[a] == 0 })
}

// Summary is the result of a run.
type Summary struct {
	Peak         int     // replicas
	ReplicaHours float64 // paid for
	IdleShare    float64 // the share of these without a session that has messages
	CaughtUp     int     // the first second after which no change waits for longer than a second; -1 if one does at the end
	MostWaiting  int     // changes
	Throttled    int     // seconds
}

// Summarize returns the summary of a run.
func Summarize(run []Second) Summary {
	sum := Summary{CaughtUp: -1}
	var paid, useful int
	for i, s := range run {
		sum.Peak = max(sum.Peak, s.Replicas)
		paid += s.Replicas
		useful += s.Useful
		sum.MostWaiting = max(sum.MostWaiting, s.Waiting)
		if s.Throttled {
			sum.Throttled++
		}
		if s.Waiting > s.Made {
			sum.CaughtUp = -1
		} else if sum.CaughtUp < 0 {
			sum.CaughtUp = i
		}
	}
	sum.ReplicaHours = float64(paid) / 3600
	if paid > 0 {
		sum.IdleShare = 1 - float64(useful)/float64(paid)
	}
	return sum
}
