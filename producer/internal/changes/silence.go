package changes

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errNoAnswer is a request that was given up. It is made again over another connection.
var errNoAnswer = errors.New("MongoDB does not answer")

// silence bounds the wait for the server's answers, and knows how long there have been none. It belongs to one goroutine.
//
// Nobody else bounds it. A peer that is gone without a word, or of which something in between has forgotten the connection,
// looks like one that has nothing to say: the kernel gives it up after a quarter of an hour, and the driver's monitor, after
// more than a minute, only when its own connections fail as well.
type silence struct {
	limit time.Duration // of one request
	since time.Time     // when the first of the requests was made that had no answer; zero: the last one had one
}

// newSilence leaves room for a second request, over another connection, before the reader gives up.
func newSilence(giveUpAfter time.Duration) silence {
	const longest = 30 * time.Second // an answer of 16 MB takes its time
	if giveUpAfter == 0 {
		return silence{limit: longest}
	}
	return silence{limit: max(min(giveUpAfter/2, longest), 2*awaitTime)}
}

// ask makes a request, and gives it up after the limit.
func (s *silence) ask(ctx context.Context, request func(ctx context.Context) error) error {
	if s.since.IsZero() {
		s.since = time.Now()
	}
	// It is cancelled and has no deadline: of a deadline the driver makes options of the command, which not every deployment
	// knows.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer time.AfterFunc(s.limit, func() { cancel(errNoAnswer) }).Stop()
	err := request(ctx)
	switch {
	case err == nil:
		s.since = time.Time{}
	case errors.Is(context.Cause(ctx), errNoAnswer):
		return fmt.Errorf("%w within %s", errNoAnswer, s.limit)
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
