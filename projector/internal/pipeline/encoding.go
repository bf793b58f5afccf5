package pipeline

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/sessions"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// A message that a newer version encoded may hold events of any aggregate of its session. If it
// were dead-lettered, later events would overtake them. So it stays in the queue: what comes before
// it is applied, and its session is released for a replica that can read it. Delivery counts do not
// rise by a release.

const (
	// encodingPause is how long a session that begins with such a message is kept at most: the
	// same replica may accept it again at once, and a newer one waits for it.
	encodingPause = 2 * time.Second
	// encodingKnown is how long after the last such message a replica is not ready.
	encodingKnown = time.Minute
)

// unreadable records messages of unknown encodings. It is safe for concurrent use.
type unreadable struct {
	mu          sync.Mutex
	contentType string    // of the last one; guarded by mu
	seen        time.Time // guarded by mu
	logged      time.Time // guarded by mu
}

// unknownEncoding is a message of such an encoding.
type unknownEncoding struct {
	message     *azservicebus.ReceivedMessage
	contentType string
}

// meet records a message, and reports whether it should be logged.
func (u *unreadable) meet(now time.Time, contentType string) (log bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	log = now.Sub(u.logged) >= remindEvery
	if u.contentType, u.seen = contentType, now; log {
		u.logged = now
	}
	return log
}

// err returns an error while messages of an unknown encoding arrive.
func (u *unreadable) err(now time.Time) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.seen.IsZero() || now.Sub(u.seen) >= encodingKnown {
		return nil
	}
	return fmt.Errorf("messages of content type %q wait, which this version cannot read: deploy the version of the producer, or a newer one", u.contentType)
}

// Ready returns why the pipeline cannot handle all messages, or nil.
func (p *Pipeline) Ready() error { return p.unreadable.err(time.Now()) }

// leaveUnknown reports a message of an unknown encoding and ends the handling of its session. The
// error is [sessions.ErrRelease], or the cause of ctx.
func (h *handler) leaveUnknown(ctx context.Context, u *unknownEncoding) error {
	if h.unreadable.meet(time.Now(), u.contentType) {
		h.opts.Logger.Error("a message has an encoding that this version cannot read; its session waits for a version that can",
			telemetry.KeySession, h.session.ID(), telemetry.KeyMessageID, u.message.MessageID, telemetry.KeyDescription, u.contentType,
			telemetry.KeyToDo, "deploy the version of the producer, or a newer one, to all projectors")
	}
	pause := encodingPause/2 + rand.N(encodingPause/2)
	if err := h.session.Yield(ctx, len(u.message.Body), func(bool) { _ = retry.Sleep(ctx, pause) }); err != nil {
		return fmt.Errorf("stop with messages in hand: %w", err)
	}
	return sessions.ErrRelease
}
