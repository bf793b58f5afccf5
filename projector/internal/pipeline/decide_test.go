package pipeline

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// turn is an attempt to write a batch and the step that must follow.
type turn struct {
	pass     time.Duration                  // before the attempt; untilDue: until a deferred change is due
	others   func(since time.Duration) bool // whether changes of other aggregates were committed meanwhile
	receives string                         // messages that are received before it, which begins a round
	round    bool                           // a round begins, without messages
	results  string                         // of the changes in the batch; "fails" is a failure of the change's own
	away     bool                           // the database is unavailable
	timedOut bool                           // with away: the attempt's time ran out
	fetches  string                         // no attempt to write: what became of the body of the first change
	repeat   time.Duration                  // the turn is repeated for so long, or until a change becomes poison

	want     string
	due      time.Duration // with deferRest: the longest time until a change is due
	finished time.Duration // with repeat: the time after which a change became poison; 0: none did
}

const untilDue time.Duration = -1

// describe writes a step, and how the next attempt is made, as text.
func describe(s step, b *batch) string {
	text := []string{[]string{"finish", "write", "writeLater", "fetch", "deferRest", "release", "fail"}[s.action]}
	if s.action == fetch {
		text = append(text, b.changes[s.change].MessageID)
	}
	for _, name := range slices.Sorted(maps.Keys(b.skip)) {
		text = append(text, "skip "+name)
	}
	if b.limit > 0 {
		text = append(text, fmt.Sprint("limit ", b.limit))
	}
	for i, r := range b.results {
		if r.Kind == apply.Poison {
			text = append(text, "park "+b.changes[i].Aggregate+" "+r.Reason)
		}
	}
	if s.available {
		text = append(text, "available")
	}
	if s.unavailable != nil {
		text = append(text, "unavailable")
	}
	if len(s.failing) > 0 {
		text = append(text, "log")
	}
	return strings.Join(text, ", ")
}

// addNamed adds messages by name: a1 is the message 1 of the aggregate a; a1@s comes from the
// stream s, and the body of a1* is in a blob.
func (b *batch) addNamed(names string) *batch {
	for name := range strings.FieldsSeq(names) {
		id, stream, _ := strings.Cut(name, "@")
		c := envelope.Change{MessageID: strings.TrimSuffix(id, "*"), Aggregate: id[:1], Stream: stream}
		if strings.HasSuffix(id, "*") {
			c.Claim = &envelope.Claim{}
		}
		b.add(event{message: &azservicebus.ReceivedMessage{MessageID: c.MessageID}}, c, apply.Result{})
	}
	return b
}

var kinds = map[string]apply.Result{
	"pending": {}, "fails": {}, "applied": {Kind: apply.Applied}, "idle": {Kind: apply.Applied, Idle: true}, "duplicate": {Kind: apply.Duplicate}, "parked": {Kind: apply.Parked},
	"gap":    {Kind: apply.Gap, Reason: apply.ReasonVersionGap},
	"poison": {Kind: apply.Poison, Recorded: true},
}

// bodies are the ends of attempts to fetch a body.
var bodies = map[string]error{"here": nil, "unavailable": errDown, "gone": &envelope.Error{Reason: envelope.ReasonClaimMissing}}

var errDown, errOwn = errors.New("the database is unavailable"), errors.New("refused")

func TestNext(t *testing.T) {
	const after, gapWait = 10 * time.Minute, 30 * time.Second
	never := func(time.Duration) bool { return false }
	always := func(time.Duration) bool { return true }
	once := func(since time.Duration) bool { return since == 0 }
	every := func(d time.Duration) func(time.Duration) bool {
		return func(since time.Duration) bool { return since%d == 0 }
	}
	failing := func(others func(time.Duration) bool, length, parked time.Duration) turn {
		return turn{pass: 10 * time.Second, others: others, results: "fails", repeat: length, finished: parked}
	}
	for name, test := range map[string]struct {
		batch   string
		forever bool // an event may fail for any time
		turns   []turn
	}{
		// One attempt.
		"everything is decided": {batch: "a1 b1 c1 d1", turns: []turn{
			{results: "applied duplicate parked poison", want: "finish, available"},
		}},
		"the database is unavailable": {batch: "a1 b1", turns: []turn{
			{results: "pending pending", away: true, want: "writeLater, unavailable"},
		}},
		"it became unavailable after a part of the batch was written": {batch: "a1 b1 c1", turns: []turn{
			{results: "applied pending pending", away: true, want: "writeLater, available, unavailable"},
		}},
		"it is unavailable for long": {batch: "a1 b1", turns: []turn{
			{pass: maxStuck - 1, results: "pending pending", away: true, want: "writeLater, unavailable"},
			{pass: 1, results: "pending pending", away: true, want: "release, unavailable"},
		}},
		"it recovers": {batch: "a1 b1", turns: []turn{
			{results: "pending pending", away: true, want: "writeLater, unavailable"},
			{pass: time.Minute, results: "applied applied", want: "finish, available"},
		}},
		"changes are decided, and others wait for them": {batch: "a1 a2", turns: []turn{
			{results: "applied pending", want: "write, available"},
		}},
		"nothing is decided, and nothing waits": {batch: "a1", turns: []turn{{results: "pending", want: "fail, available"}}},

		// A failure of an aggregate's own.
		"a change fails, and others are written": {batch: "a1 b1", turns: []turn{
			{results: "fails applied", want: "write, skip a, available, log"},
			{results: "pending", want: "deferRest, skip a", due: 200 * time.Millisecond},
		}},
		"a change fails, and nothing else is there": {batch: "a1", turns: []turn{
			{results: "fails", want: "write, skip a, log"},
		}},
		"it is tried again as soon as it is due": {batch: "a1", turns: []turn{
			{results: "fails", want: "write, skip a, log"},
			{results: "pending", want: "deferRest, skip a", due: 200 * time.Millisecond},
			{receives: "b1", results: "pending applied", want: "write, skip a, available"},
			{results: "pending", want: "deferRest, skip a", due: 200 * time.Millisecond},
			{pass: untilDue, receives: "b2", results: "applied applied", want: "finish, available"},
		}},
		"one that fails again is logged after five minutes": {batch: "a1", turns: []turn{
			{results: "fails", want: "write, skip a, log"},
			{pass: time.Minute, results: "fails", want: "write, skip a"},
			{pass: 4 * time.Minute, results: "fails", want: "write, skip a, log"},
		}},
		"the only aggregate that is tried fails as the database does, while others are written elsewhere": {batch: "a1", turns: []turn{
			{results: "pending", away: true, want: "writeLater, unavailable, log"},
			{pass: time.Second, others: always, results: "pending", away: true, want: "writeLater, unavailable"},
			{pass: time.Second, others: always, results: "pending", away: true, want: "write, skip a"},
		}},
		"an aggregate's own commits prove nothing": {batch: "a1 a2", turns: []turn{
			{results: "pending pending", away: true, want: "writeLater, unavailable, log"},
			{pass: time.Second, results: "applied pending", want: "write, available"},
			{pass: time.Second, results: "pending", away: true, want: "writeLater, unavailable, log"},
		}},
		"of several aggregates none is to blame for the database": {batch: "a1 b1", turns: []turn{
			{pass: time.Second, others: always, results: "pending pending", away: true, want: "writeLater, unavailable"},
			{pass: time.Second, others: always, results: "pending pending", away: true, want: "writeLater, unavailable"},
			{pass: time.Second, others: always, results: "pending pending", away: true, want: "writeLater, unavailable"},
		}},
		"of several the one that is tried is": {batch: "a1 b1", turns: []turn{
			{results: "pending pending", away: true, timedOut: true, want: "writeLater, unavailable"},
			{results: "pending pending", away: true, timedOut: true, want: "writeLater, limit 1, unavailable"},
			{results: "pending pending", away: true, timedOut: true, want: "writeLater, limit 1, unavailable, log"},
			{pass: time.Second, others: always, results: "pending pending", away: true, want: "writeLater, limit 1, unavailable"},
			{pass: time.Second, others: always, results: "pending pending", away: true, want: "write, skip a, limit 1"},
		}},
		"half as many changes are tried after two attempts that timed out": {batch: "a1 b1 c1 d1", turns: []turn{
			{results: "pending pending pending pending", away: true, timedOut: true, want: "writeLater, unavailable"},
			{results: "pending pending pending pending", away: true, timedOut: true, want: "writeLater, limit 2, unavailable"},
			{results: "applied applied pending pending", want: "write, limit 4, available"},
		}},

		// G5: an aggregate is parked only for what is its own.
		"it fails while others succeed":       {batch: "a1", turns: []turn{failing(always, 3*time.Hour, after+10*time.Second)}},
		"no other succeeds":                   {batch: "a1", turns: []turn{failing(never, 3*time.Hour, 0)}},
		"others succeed before it fails":      {batch: "a1", turns: []turn{failing(once, 3*time.Hour, 0)}},
		"another succeeds every six minutes":  {batch: "a1", turns: []turn{failing(every(6*time.Minute), 3*time.Hour, 0)}},
		"another succeeds every four minutes": {batch: "a1", turns: []turn{failing(every(4*time.Minute), 3*time.Hour, after+10*time.Second)}},
		"ten minutes count from an outage's end": {batch: "a1", turns: []turn{
			failing(func(since time.Duration) bool { return since >= time.Hour }, 3*time.Hour, time.Hour+after+10*time.Second),
		}},
		"they count from the end of an outage in which it was not tried": {batch: "a1", turns: []turn{
			{pass: time.Second, results: "fails", want: "write, skip a, log"},
			{pass: time.Second, others: always, results: "fails", want: "write, skip a"},
			{pass: time.Second, others: always, results: "fails", want: "write, skip a"},
			{pass: after, receives: "b1", results: "fails applied", want: "write, skip a, available, log"},
			failing(always, 3*time.Hour, 2*after+3*time.Second),
		}},
		"at rest, others are committed only when their sessions are accepted again": {batch: "a1", turns: []turn{
			{pass: time.Second, results: "fails", want: "write, skip a, log"},
			{pass: time.Second, others: always, results: "fails", want: "write, skip a"},
			{pass: time.Second, others: always, results: "fails", want: "write, skip a"},
			{pass: maxStuck + 10*time.Second, receives: "b1", results: "fails applied", want: "write, skip a, available, log"},
			{pass: maxStuck + 10*time.Second, receives: "c1", results: "fails applied", want: "write, park a Undecided, available"},
		}},
		"it may fail for ever": {batch: "a1", forever: true, turns: []turn{failing(always, 3*time.Hour, 0)}},

		// Missing versions.
		"a version is missing": {batch: "a1 b1", turns: []turn{
			{results: "gap applied", want: "write, available"},
			{results: "gap", want: "deferRest", due: 100 * time.Millisecond},
			{pass: untilDue, receives: "c1", results: "applied applied", want: "finish, available"},
		}},
		"it comes behind the change that waits": {batch: "a2", turns: []turn{
			{results: "gap", want: "write, available"},
			{results: "gap", want: "deferRest", due: 100 * time.Millisecond},
			{receives: "a1", results: "gap applied", want: "write, available"},
			{results: "applied", want: "finish, available"},
		}},
		"it is waited for as long as it may": {batch: "a1", turns: []turn{
			{results: "gap", want: "write, available"},
			{results: "gap", want: "deferRest", due: 100 * time.Millisecond},
			{pass: untilDue, round: true, results: "gap", repeat: time.Hour, due: maxGapPause, finished: gapWait},
		}},
		"another event is another gap": {batch: "a1 b1", turns: []turn{
			{results: "gap gap", want: "write, available"},
			{results: "gap gap", want: "deferRest", due: 100 * time.Millisecond},
			{pass: 29 * time.Second, round: true, results: "duplicate gap", want: "write, available"},
			{receives: "a2", results: "gap gap", want: "write, available"},
			{results: "gap gap", want: "deferRest"},
			{pass: time.Second, results: "gap gap", want: "write, park b VersionGap"},
		}},
		"messages of others do not delay the next attempt": {batch: "a1", turns: []turn{
			{results: "gap", want: "write, available"},
			{results: "gap", want: "deferRest", due: 100 * time.Millisecond},
			{pass: 45 * time.Millisecond, receives: "b1", results: "gap applied", want: "write, available"},
			{results: "gap", want: "deferRest", due: 55 * time.Millisecond},
		}},
		"an interrupted wait begins again": {batch: "a1", turns: []turn{
			{results: "gap", want: "write, available"},
			{results: "gap", want: "deferRest", due: 100 * time.Millisecond},
			{pass: 50 * time.Second, results: "gap", want: "deferRest", due: 100 * time.Millisecond},
		}},
		"a change of another stream waits beside the gap": {batch: "a1@s a2@t", turns: []turn{
			{results: "gap gap", want: "write, available"},
			{results: "gap gap", want: "deferRest", due: 100 * time.Millisecond},
			{pass: gapWait, results: "gap gap", want: "write, park a VersionGap, park a VersionGap"},
		}},

		// Bodies in blobs.
		"a body is fetched, after what can be written": {batch: "a1* b1 b2", turns: []turn{
			{results: "pending applied pending", want: "write, available"},
			{results: "pending applied", want: "write, available"},
			{results: "pending", want: "fetch, a1"},
		}},
		"a body that cannot be fetched holds up no other": {batch: "a1* b1*", turns: []turn{
			{results: "pending pending", want: "fetch, a1"},
			{fetches: "unavailable", want: "fetch, b1, skip a"},
		}},
		"it is fetched again later": {batch: "a1*", turns: []turn{
			{results: "pending", want: "fetch, a1"},
			{fetches: "unavailable", want: "deferRest, skip a", due: 200 * time.Millisecond},
			{pass: untilDue, receives: "b1", results: "pending applied", want: "write, available"},
			{results: "pending", want: "fetch, a1"},
		}},
		"its event is applied when it has come": {batch: "a1*", turns: []turn{
			{results: "pending", want: "fetch, a1"},
			{fetches: "here", want: "write"},
		}},
		"its event is parked if it is gone": {batch: "a1*", turns: []turn{
			{results: "pending", want: "fetch, a1"},
			{fetches: "gone", want: "write, park a ClaimCheckMissing"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			d := newDecider(after, gapWait)
			if test.forever {
				d.undecidedAfter = 0
			}
			b := (&batch{}).addNamed(test.batch)
			s := d.next(now, b, attempt{})
			require.Equal(t, "write", describe(s, b))
			began := now
			for i, turn := range test.turns {
				repeated := now
				for {
					if turn.others != nil && turn.others(now.Sub(repeated)) {
						other := (&batch{}).addNamed("z1")
						d.next(now, other, attempt{})
						other.results[0].Kind = apply.Applied
						d.next(now, other, attempt{made: true})
					}
					if turn.pass == untilDue {
						now = s.until
					} else {
						now = now.Add(turn.pass)
					}
					if turn.receives != "" || turn.round {
						b = join(b, (&batch{}).addNamed(turn.receives))
						d.next(now, b, attempt{})
					}
					s = play(t, d, now, b, turn)
					for turn.round && turn.repeat > 0 && s.action == write && !parks(b) {
						s = play(t, d, now, b, turn)
					}
					if turn.repeat == 0 || parks(b) || now.Sub(repeated) >= turn.repeat {
						break
					}
					if turn.due > 0 {
						require.Equal(t, deferRest, s.action)
						require.LessOrEqual(t, s.until.Sub(now), turn.due)
						require.Positive(t, s.until.Sub(now))
					}
				}
				require.Equal(t, turn.finished > 0, turn.repeat > 0 && parks(b))
				switch {
				case turn.finished > 0:
					require.Equal(t, turn.finished, now.Sub(began))
				case turn.repeat == 0:
					require.Equal(t, turn.want, describe(s, b), "turn %d", i)
					if s.action == deferRest && turn.due > 0 {
						require.LessOrEqual(t, s.until.Sub(now), turn.due, "turn %d", i)
						require.Positive(t, s.until.Sub(now), "turn %d", i)
					}
				}
			}
		})
	}
}

// parks reports whether the next attempt parks an aggregate.
func parks(b *batch) bool {
	return slices.ContainsFunc(b.results, func(r apply.Result) bool { return r.Kind == apply.Poison })
}

// play makes the attempt of a turn.
func play(t *testing.T, d *decider, now time.Time, b *batch, turn turn) step {
	if turn.fetches != "" {
		return d.next(now, b, attempt{fetched: true, change: 0, err: bodies[turn.fetches]})
	}
	a := attempt{made: true, limit: b.limit, tried: b.tries(), timedOut: turn.timedOut}
	if turn.away {
		a.err = errDown
	}
	results := strings.Fields(turn.results)
	require.Len(t, results, b.len())
	for i, kind := range results {
		require.Contains(t, kinds, kind)
		require.True(t, kind == "gap" || b.results[i].Kind != apply.Gap, "a change that waits for a version is not tried")
		b.results[i] = kinds[kind]
		if kind == "fails" {
			a.failures = append(a.failures, apply.Failure{Index: i, Err: errOwn})
		}
	}
	return d.next(now, b, a)
}

func TestEventsThatNoLongerWaitAreForgotten(t *testing.T) {
	d := newDecider(10*time.Minute, 30*time.Second)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b := (&batch{}).addNamed("a1 b1")
	d.next(now, b, attempt{})
	play(t, d, now, b, turn{results: "fails gap"})
	play(t, d, now, b, turn{results: "pending gap"})
	require.Len(t, d.waiting, 2)
	d.next(now.Add(time.Minute), &batch{}, attempt{})
	require.Len(t, d.waiting, 1, "the gap is forgotten")
	d.next(now.Add(time.Minute+failuresKept), &batch{}, attempt{})
	require.Empty(t, d.waiting)
}

// With several projectors, a session whose event fails goes from one to the next. Each must know
// the event when it comes back, or UNDECIDED_AFTER would never end.
func TestG5AFailureIsRememberedWhileOtherProjectorsHaveItsSession(t *testing.T) {
	d := newDecider(10*time.Minute, 30*time.Second)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b := (&batch{}).addNamed("a1")
	d.next(now, b, attempt{})
	play(t, d, now, b, turn{results: "fails"})
	for _, want := range []string{"write, skip a, log", "write, park a Undecided"} { // nothing was committed before the first failure
		for range 8 {
			now = now.Add(maxStuck)
			play(t, d, now, (&batch{}).addNamed("z1"), turn{results: "applied"})
		}
		b = (&batch{}).addNamed("a1")
		d.next(now, b, attempt{})
		require.Equal(t, want, describe(play(t, d, now, b, turn{results: "fails"}), b))
	}
}

// An event whose transactions lose to those of others, again and again, is not to blame: the others
// are committed in its place.
func TestG6ContentionParksNothing(t *testing.T) {
	d := newDecider(10*time.Minute, 30*time.Second)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := step{action: release}
	var b *batch
	for range 1000 {
		if s.action == release {
			b = (&batch{}).addNamed("a1")
			d.next(now, b, attempt{})
		}
		now = now.Add(10 * time.Second)
		play(t, d, now, (&batch{}).addNamed("z1"), turn{results: "applied"})
		s = d.next(now, b, attempt{made: true, limit: b.limit, tried: true, timedOut: true, err: fmt.Errorf("%w: %w", apply.ErrContended, errOwn)})
		require.False(t, parks(b), "after %v", now)
		require.Error(t, s.unavailable)
	}
}

// The database may refuse every write and nevertheless answer: an update that matches nothing then
// succeeds, that of an event without an effect or of one that was applied before. Such events
// must not make it look as if single aggregates failed, or the outage would park them.
func TestG6AnOutageOfWritesParksNothingBesideEventsForWhichNothingIsWritten(t *testing.T) {
	d := newDecider(10*time.Minute, 30*time.Second)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b := (&batch{}).addNamed("a1")
	d.next(now, b, attempt{})
	for range 200 {
		now = now.Add(10 * time.Second)
		play(t, d, now, (&batch{}).addNamed("z1"), turn{results: "idle"})
		play(t, d, now, b, turn{results: "fails"})
		require.False(t, parks(b), "after %v", now)
	}
	for began := now; !parks(b); {
		require.Less(t, now.Sub(began), 11*time.Minute)
		now = now.Add(10 * time.Second)
		play(t, d, now, (&batch{}).addNamed("z1"), turn{results: "applied"})
		play(t, d, now, b, turn{results: "fails"})
	}
}
