package remote

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

const (
	// maxCall bounds the events of one call, in bytes of JSON; a larger event goes alone.
	maxCall = 1 << 20
	// waitShare is the part of the time-out for which a session waits for one call; the rest is
	// for its other events. Each time-out halves it, and each event whose answer is still awaited,
	// down to minWait: so many events that the program does not answer occupy a worker little
	// longer than one.
	waitShare = 8
	minWait   = 5 * time.Millisecond
	// maxLate bounds the single events whose answers are awaited after a session has given up
	// waiting. Beyond it, no event is called for that failed before.
	maxLate = 1000
)

// Away is why a whole batch waits: the program cannot be called now.
type Away struct {
	err error
	// Wait is how long the program asks to wait; 0: it does not say.
	Wait time.Duration
}

func (a *Away) Error() string { return a.err.Error() }
func (a *Away) Unwrap() error { return a.err }

// lateCall is a call for one event. ended, outcomes and failed are valid once done is closed.
type lateCall struct {
	done     chan struct{}
	hash     string // of the declaration
	began    time.Time
	ended    time.Time
	outcomes []Outcome
	failed   *callError
}

// Ask returns the outcomes of events of one session, in calls of as many as possible. A failed call
// is halved, down to one event; only then is the event to blame. An error is an [*Away], and
// outcomes that are nil then are not known.
func (c *Client) Ask(ctx context.Context, events []*envelope.Change) ([]*Outcome, error) {
	d := c.declared.Load()
	a := &asking{Client: c, declared: d, events: events, outcomes: make([]*Outcome, len(events))}
	if wait := c.pause(); wait > 0 {
		return a.outcomes, &Away{err: errors.New("the program asks to wait"), Wait: wait}
	}
	var together, single, suspect []int
	c.mu.Lock()
	for i, e := range events {
		switch id := e.MessageID; {
		case c.late[id] != nil, c.blame.single(id) && !c.blame.suspect(id):
			single = append(single, i)
		case c.blame.suspect(id):
			suspect = append(suspect, i)
		default:
			together = append(together, i)
		}
	}
	c.mu.Unlock()
	err := a.calls(ctx, together)
	if err == nil {
		err = a.singles(ctx, single, true)
	}
	for i := 0; err == nil && i < len(suspect); i++ {
		err = a.try(ctx, suspect[i])
	}
	if failed, ok := errors.AsType[*callError](err); ok {
		if failed.kind == redeclared {
			if again := c.readAgain(ctx, d); again != nil {
				err = fmt.Errorf("%w: %w", err, again)
				c.answered(&callError{kind: away, err: err})
			} else {
				c.answered(nil)
			}
		}
		err = &Away{err: err, Wait: failed.wait}
	}
	return a.outcomes, err
}

// asking is one Ask.
type asking struct {
	*Client
	declared *Declaration
	events   []*envelope.Change
	outcomes []*Outcome
	timeouts int
}

// calls calls for events together, in as few calls as their size permits.
func (a *asking) calls(ctx context.Context, indexes []int) error {
	for len(indexes) > 0 {
		size := 0
		for _, i := range indexes {
			size += jsonSize(a.events[i])
		}
		body, n := append(make([]byte, 0, min(size, maxCall)), '['), 0
		for n < len(indexes) {
			i := indexes[n]
			longer, ok := a.encode(body, i, n)
			if !ok {
				indexes = append(indexes[:n:n], indexes[n+1:]...)
				continue
			}
			if n > 0 && len(longer) > maxCall {
				break
			}
			body = longer
			n++
		}
		if n == 0 {
			return nil
		}
		if err := a.call(ctx, indexes[:n], append(body, ']')); err != nil {
			return err
		}
		indexes = indexes[n:]
	}
	return nil
}

// encode appends an event to the body of a call, as its n-th. ok is false if the event has an
// outcome without a call.
func (a *asking) encode(body []byte, i, n int) (_ []byte, ok bool) {
	if a.outcomes[i] != nil {
		return body, false
	}
	body, err := appendEvent(body, n, a.events[i], a.declared.TakesBase64)
	if err != nil {
		a.outcomes[i] = &Outcome{Err: projection.Permanent(err)}
		return body, false
	}
	return body, true
}

// encodeAlone returns the body of a call for one event.
func (a *asking) encodeAlone(i int) (_ []byte, ok bool) {
	body, ok := a.encode([]byte{'['}, i, 0)
	return append(body, ']'), ok
}

// call makes a call for events, and halves it if it fails.
func (a *asking) call(ctx context.Context, indexes []int, body []byte) error {
	if len(indexes) == 1 {
		return a.singles(ctx, indexes, false)
	}
	ids := make([]string, len(indexes))
	for n, i := range indexes {
		ids[n] = a.events[i].MessageID
	}
	if err := a.trial.Acquire(ctx, 1); err != nil {
		return &callError{kind: away, err: context.Cause(ctx)}
	}
	began := time.Now()
	waiting, cancel := context.WithTimeoutCause(ctx, a.waitTime(false), errNotAwaited)
	outcomes, failed := a.post(waiting, body, len(indexes), a.declared.Hash)
	cancel()
	a.trial.Release(1)
	a.answered(failed)
	if failed == nil {
		a.mu.Lock()
		a.blame.pass(time.Now(), ids...)
		a.mu.Unlock()
		for n, i := range indexes {
			a.outcomes[i] = &outcomes[n]
		}
		return nil
	}
	if failed.kind == away || failed.kind == redeclared {
		return failed
	}
	a.mu.Lock()
	a.blame.fail(time.Now(), began, failed, false, ids...)
	a.mu.Unlock()
	if failed.kind == slow {
		if a.timeouts++; a.timeouts >= 2 {
			return a.singles(ctx, indexes, false)
		}
	}
	if err := a.calls(ctx, indexes[:len(indexes)/2]); err != nil {
		return err
	}
	return a.calls(ctx, indexes[len(indexes)/2:])
}

// waitTime returns how long a session waits for one call: never less than a few times what calls
// take now, and no more than that for events that failed before.
func (a *asking) waitTime(failedBefore bool) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	longest := a.o.Timeout / waitShare
	shortest := min(minWait+4*a.typical, longest)
	if failedBefore {
		return shortest
	}
	return max(longest>>min(a.timeouts+len(a.late), 30), shortest)
}

// singles calls for each event alone, all at once, and waits a time for the answers of all. An
// event that is not answered then fails; its answer is taken by the next Ask.
func (a *asking) singles(ctx context.Context, indexes []int, failedBefore bool) error {
	if len(indexes) == 0 {
		return nil
	}
	if err := a.trial.Acquire(ctx, 1); err != nil {
		return &callError{kind: away, err: context.Cause(ctx)}
	}
	defer a.trial.Release(1)
	limit := time.NewTimer(a.waitTime(failedBefore))
	defer limit.Stop()
	began := time.Now()
	calls := make(map[int]*lateCall, len(indexes))
	for _, i := range indexes {
		if call, ok := a.single(ctx, i); ok {
			calls[i] = call
		}
	}
	expired := false
	var unreachable error
	for _, i := range indexes {
		call := calls[i]
		if call == nil {
			continue
		}
		if !expired && !call.began.Before(began) { // an earlier call has been waited for
			select {
			case <-call.done:
			case <-limit.C:
				expired = true
			case <-ctx.Done():
				return &callError{kind: away, err: context.Cause(ctx)}
			}
		}
		if err := a.settle(i, call); err != nil {
			unreachable = err
		}
	}
	if expired {
		a.timeouts++
	}
	return unreachable
}

// single returns the call for one event: the one whose answer is awaited, or a new one. ok is false
// if the event has an outcome without a call.
func (a *asking) single(ctx context.Context, i int) (_ *lateCall, ok bool) {
	id := a.events[i].MessageID
	a.mu.Lock()
	earlier := a.late[id]
	useless := earlier != nil && earlier.useless(a.declared.Hash)
	if useless {
		delete(a.late, id)
	}
	awaited := len(a.late)
	a.mu.Unlock()
	switch {
	case useless && earlier.failed != nil && earlier.failed.kind == slow:
		a.answered(earlier.failed)
	case earlier != nil && !useless:
		return earlier, true
	}
	if awaited >= maxLate {
		busy := fmt.Errorf("%d events wait for an answer of the program, so that it is given no other one", awaited)
		a.outcomes[i] = &Outcome{Err: &callError{kind: slow, err: busy}}
		return nil, false
	}
	body, ok := a.encodeAlone(i)
	if !ok {
		return nil, false
	}
	call := &lateCall{done: make(chan struct{}), hash: a.declared.Hash, began: time.Now()}
	// The call outlives this Ask, and not the program's answer or the time-out.
	calling, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.o.Timeout)
	stop := context.AfterFunc(ctx, cancel)
	a.running.Go(func() {
		defer cancel()
		defer stop()
		call.outcomes, call.failed = a.post(calling, body, 1, call.hash)
		call.ended = time.Now()
		close(call.done)
	})
	return call, true
}

// settle takes the answer of a call for one event, or keeps the call if it has not come yet. It
// returns an error if the program cannot be called.
func (a *asking) settle(i int, call *lateCall) error {
	id := a.events[i].MessageID
	if call.hasEnded() {
		a.mu.Lock()
		delete(a.late, id)
		a.mu.Unlock()
		return a.decide(i, call.began, call.outcomes, call.failed, false)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.late, func(_ string, c *lateCall) bool { return c.over() })
	a.late[id] = call
	hangs := &callError{kind: slow, err: fmt.Errorf("the program has not answered for the event (since %s)", call.began.UTC().Format(time.RFC3339))}
	a.blame.fail(time.Now(), call.began, hangs, false, id)
	a.outcomes[i] = &Outcome{Err: hangs}
	return nil
}

// decide takes the answer of a call for one event; exclusive: no other event was in flight. It
// returns an error if the program cannot be called.
func (a *asking) decide(i int, began time.Time, outcomes []Outcome, failed *callError, exclusive bool) error {
	id := a.events[i].MessageID
	a.answered(failed)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case failed == nil:
		a.blame.pass(time.Now(), id)
		a.outcomes[i] = &outcomes[0]
	case failed.kind == away, failed.kind == redeclared:
		return failed
	default:
		a.blame.fail(time.Now(), began, failed, exclusive, id)
		a.outcomes[i] = &Outcome{Err: a.blame.judge(id, failed)}
	}
	return nil
}

// hasEnded reports whether the answer has come, or why none does.
func (c *lateCall) hasEnded() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// useless reports whether a call has ended without an answer that counts now: with the session that
// made it, under another declaration, or without any answer, which shows nothing of the program
// now.
func (c *lateCall) useless(hash string) bool {
	return c.hasEnded() &&
		(c.hash != hash || c.failed != nil && (c.failed.kind == away || c.failed.kind == redeclared || c.failed.kind == slow))
}

// over reports whether a call ended so long ago that its event is decided elsewhere.
func (c *lateCall) over() bool { return c.hasEnded() && time.Since(c.ended) > forgetAfter }

// try calls for an event that was in flight when the program died, while no other one is.
func (a *asking) try(ctx context.Context, i int) error {
	body, ok := a.encodeAlone(i)
	if !ok {
		return nil
	}
	if err := a.trial.Acquire(ctx, whole); err != nil {
		return &callError{kind: away, err: context.Cause(ctx)}
	}
	defer a.trial.Release(whole)
	began := time.Now()
	waiting, cancel := context.WithTimeoutCause(ctx, a.waitTime(false), errNotAwaited)
	defer cancel()
	outcomes, failed := a.post(waiting, body, 1, a.declared.Hash)
	return a.decide(i, began, outcomes, failed, true)
}
