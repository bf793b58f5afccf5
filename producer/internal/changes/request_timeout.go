package changes

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-cdc/sluice/shared/mongodb"
)

// errNoResponse reports a request that timed out. It is retried over another connection.
var errNoResponse = errors.New("MongoDB does not answer")

// responseTimeout bounds the wait for the server's responses, and tracks how long there have been
// none. It belongs to one goroutine.
//
// Nothing else bounds it. A server that vanished, or whose connection was dropped in between, is
// indistinguishable from one that has nothing to return: the kernel notices after a quarter of an
// hour; the driver's monitor after more than a minute, and only if its own connections fail as
// well.
type responseTimeout struct {
	limit time.Duration // of one request
	since time.Time     // when the first unanswered request was made; zero: the last request was answered
}

// newResponseTimeout leaves time for a second request, over another connection, before the reader
// gives up.
func newResponseTimeout(giveUpAfter time.Duration) responseTimeout {
	const longest = 30 * time.Second // a response of 16 MB takes a while
	if giveUpAfter == 0 {
		return responseTimeout{limit: longest}
	}
	return responseTimeout{limit: max(min(giveUpAfter/2, longest), 2*awaitTime)}
}

// ResumeTimeout is the timeout for the first response of a resumed stream, if it is longer than the
// normal one. Before that response the server scans its oplog from the resume point, including
// writes to other collections (about 23 s for ten million entries), and starts over with each
// request: with a constant timeout the response might never arrive. So the timeout doubles whenever
// that response is missing although the server answers otherwise, and falls to twice what the last
// such response took. It outlives the terms of a process. The zero value is ready to use.
type ResumeTimeout struct{ nanoseconds atomic.Int64 }

// maxResumeTimeout limits it, so that a request that hangs on the server is repeated some day. In
// that time a server scans six billion entries.
const maxResumeTimeout = 4 * time.Hour

func (p *ResumeTimeout) current() time.Duration { return time.Duration(p.nanoseconds.Load()) }

// setTwice sets it to twice what a first response took, or may take at least.
func (p *ResumeTimeout) setTwice(d time.Duration) {
	p.nanoseconds.Store(int64(min(2*d, maxResumeTimeout)))
}

// request makes a request that times out after limit.
func (s *responseTimeout) request(ctx context.Context, limit time.Duration, request func(ctx context.Context) error) error {
	if s.since.IsZero() {
		s.since = time.Now()
	}
	// The context is cancelled instead of having a deadline: from a deadline the driver would
	// derive command options that not every deployment supports.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer time.AfterFunc(limit, func() { cancel(errNoResponse) }).Stop()
	err := request(ctx)
	switch {
	case err == nil, mongodb.Answered(err):
		s.since = time.Time{}
	case errors.Is(context.Cause(ctx), errNoResponse):
		return fmt.Errorf("%w within %s", errNoResponse, limit)
	}
	return err
}

// silentFor returns how long there has been no response.
func (s *responseTimeout) silentFor() time.Duration {
	if s.since.IsZero() {
		return 0
	}
	return time.Since(s.since)
}
