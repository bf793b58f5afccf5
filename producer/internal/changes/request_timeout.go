package changes

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-cdc/sluice/shared/mongodb"
)

// errNoAnswer is a request that timed out. It is retried over another connection.
var errNoAnswer = errors.New("MongoDB does not answer")

// silence bounds the wait for the server's answers, and knows how long there have been none. It belongs to one goroutine.
//
// Nothing else bounds it. A server that vanished, or whose connection was dropped by something in between, looks like one that
// has nothing to say: the kernel notices after a quarter of an hour; the driver's monitor after more than a minute, and only when
// its own connections fail as well.
type silence struct {
	limit time.Duration // of one request
	since time.Time     // when the first of the unanswered requests was made; zero: the last request was answered
}

// newSilence leaves room for a second request, over another connection, before the reader gives up.
func newSilence(giveUpAfter time.Duration) silence {
	const longest = 30 * time.Second // an answer of 16 MB takes its time
	if giveUpAfter == 0 {
		return silence{limit: longest}
	}
	return silence{limit: max(min(giveUpAfter/2, longest), 2*awaitTime)}
}

// Patience is how long the first answer of a stream that resumes is waited for where that is longer than any other's. The server looks
// through everything in its oplog since the resume point before it gives one, also through what was written elsewhere (some 23 s for ten
// million entries), and begins again each time that it is asked: with a limit that stays the same it would never come. So the limit doubles
// whenever that answer does not come although the server answers otherwise. It outlives the terms of a process. The zero value is ready
// to use, nil is never patient.
type Patience struct{ nanoseconds atomic.Int64 }

// mostPatience bounds it: somebody has to notice.
const mostPatience = 15 * time.Minute

func (p *Patience) now() time.Duration {
	if p == nil {
		return 0
	}
	return time.Duration(p.nanoseconds.Load())
}

func (p *Patience) grow(limit time.Duration) {
	if p != nil {
		p.nanoseconds.Store(int64(min(2*limit, mostPatience)))
	}
}

// ask makes a request, which times out after the limit.
func (s *silence) ask(ctx context.Context, limit time.Duration, request func(ctx context.Context) error) error {
	if s.since.IsZero() {
		s.since = time.Now()
	}
	// The context is cancelled and has no deadline: from a deadline the driver would make options of the command, which not every
	// deployment knows.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer time.AfterFunc(limit, func() { cancel(errNoAnswer) }).Stop()
	err := request(ctx)
	switch {
	case err == nil, mongodb.Answered(err):
		s.since = time.Time{}
	case errors.Is(context.Cause(ctx), errNoAnswer):
		return fmt.Errorf("%w within %s", errNoAnswer, limit)
	}
	return err
}

// lasts is how long there has been no answer.
func (s *silence) lasts() time.Duration {
	if s.since.IsZero() {
		return 0
	}
	return time.Since(s.since)
}
