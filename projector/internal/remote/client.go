package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/outage"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// DefaultTimeout is PROJECTION_TIMEOUT's default.
const DefaultTimeout = 10 * time.Second

// Options are the settings of a client.
type Options struct {
	URL string
	// Timeout bounds one call.
	Timeout time.Duration
	// Dial opens connections to the program; nil dials.
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
	Logger *slog.Logger
}

// hooks are what a running projector does about the program's answers.
type hooks struct {
	metrics *Metrics
	adopt   func(ctx context.Context, next *Declaration) error
	refused func(err error)
}

// Client calls a program. It is safe for concurrent use.
type Client struct {
	o      Options
	hooks  hooks
	url    string
	http   *http.Client
	outage *outage.Outage

	declared atomic.Pointer[Declaration]
	reading  *semaphore.Weighted // held while the declaration is read again

	// trial is held in part by each call, and as a whole while an event is tried that the program
	// may have died of.
	trial *semaphore.Weighted

	// commands bounds the calls of a command, such as one that builds a read model: the program may
	// serve projectors meanwhile.
	commands *semaphore.Weighted

	running sync.WaitGroup // counts the calls, including those whose answer is no longer awaited

	mu       sync.Mutex
	blame    blame                // guarded by mu
	late     map[string]*lateCall // by message id, of single events whose answer is awaited; guarded by mu
	typical  time.Duration        // of a call that succeeds, as a moving average; guarded by mu
	passed   *envelope.Change     // the last event that a command had an answer for; guarded by mu
	notUntil time.Time            // when the program may be called again; guarded by mu
	failing  time.Time            // since when no call has succeeded; zero: the last one has; guarded by mu
	away     error                // why the program cannot be called, if that is the last thing known; guarded by mu
}

// New returns a client. Nothing is called yet.
func New(o Options) *Client {
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Client{
		o: o, url: strings.TrimSuffix(o.URL, "/"), http: newHTTP(o.Dial), outage: outage.New(o.Logger, "projection program"),
		reading: semaphore.NewWeighted(1), trial: semaphore.NewWeighted(whole), commands: semaphore.NewWeighted(commandCalls), late: make(map[string]*lateCall), blame: blame{troubles: make(map[string]*trouble)},
	}
}

// whole is all of the trial semaphore.
const whole = 1 << 30

// Begin sets what a running projector does about the program's answers, before the first call: it
// measures calls; adopt prepares for another declaration before any write that rests on it, and is
// called again after an error; refused is called with why the projection cannot continue with a
// declaration, and must not block.
func (c *Client) Begin(m *Metrics, adopt func(context.Context, *Declaration) error, refused func(error)) {
	c.hooks = hooks{m, adopt, refused}
}

// Close waits for the calls, whose contexts must have ended, and closes the connections.
func (c *Client) Close() {
	c.running.Wait()
	c.http.CloseIdleConnections()
}

// Read reads the program's declaration, of a projection of that name.
func (c *Client) Read(ctx context.Context, name string) (*Declaration, error) {
	d, err := c.declaration(ctx)
	if err != nil {
		return nil, err
	}
	if d.Name != name {
		return nil, &RefusedError{fmt.Errorf("the program at %s declares the name %q, and PROJECTION is %q: they must be equal", c.url, shorten(d.Name), name)}
	}
	return d, nil
}

// Use makes the client expect a declaration in every answer.
func (c *Client) Use(d *Declaration) { c.declared.Store(d) }

// Declared returns the declaration in use.
func (c *Client) Declared() *Declaration { return c.declared.Load() }

// unready is how long calls may fail, none succeeding, before the projector is not ready.
const unready = 10 * time.Second

// Ready returns why the program cannot be used: it cannot be reached, it asks to wait, or calls
// have failed for a while and none has succeeded.
func (c *Client) Ready() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.away != nil:
		return fmt.Errorf("the projection's program cannot be called: %w", c.away)
	case !c.failing.IsZero() && time.Since(c.failing) >= unready:
		return errors.New("the projection's program has not answered any call as it must for a while")
	}
	return nil
}

// answered records what a call has shown about the program as a whole.
func (c *Client) answered(failed *callError) {
	c.mu.Lock()
	now := time.Now()
	switch {
	case failed == nil:
		c.failing, c.away = time.Time{}, nil
	case failed.kind == away && failed.wait > 0:
		c.away = failed
		c.notUntil = now.Add(failed.wait)
	case failed.kind == away, failed.kind == redeclared:
		c.away = failed
	default:
		c.away = nil
		if c.failing.IsZero() {
			c.failing = now
		}
	}
	fails := c.away != nil || !c.failing.IsZero() && now.Sub(c.failing) >= unready
	c.mu.Unlock()
	switch {
	case failed == nil:
		c.outage.Report(nil)
	case fails:
		c.outage.Report(failed)
	}
}

// pause returns for how long the program asks not to be called.
func (c *Client) pause() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(c.notUntil)
}

// readAgain reads the declaration after an answer under another one, and adopts it. Until it has
// returned nil, no answer is used.
func (c *Client) readAgain(ctx context.Context, before *Declaration) error {
	if err := c.reading.Acquire(ctx, 1); err != nil {
		return context.Cause(ctx)
	}
	defer c.reading.Release(1)
	if c.declared.Load() != before {
		return nil // another session was faster
	}
	next, err := c.declaration(ctx)
	if err != nil {
		return err
	}
	if next.Hash == before.Hash {
		return fmt.Errorf("the program's answers do not carry the SHA-256 of its answer to GET /projection, which is %s", next.Hash)
	}
	if err := before.Adopts(next); err != nil {
		err = fmt.Errorf("%w. %w", err, errNewVersion)
		if c.hooks.refused != nil {
			c.hooks.refused(err)
		}
		return err
	}
	if c.hooks.adopt != nil {
		if err := c.hooks.adopt(ctx, next); err != nil {
			return err
		}
	}
	c.declared.Store(next)
	c.o.Logger.Info("the projection's program has another declaration, which is used from now on", telemetry.KeyProjection, next.Name, "declaration", next.Hash)
	return nil
}
