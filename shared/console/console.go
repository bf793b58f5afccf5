package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// every is the time between two Views.
	every = time.Second
	// viewTimeout bounds the reading of one View.
	viewTimeout = 15 * time.Second
	// endTimeout is how long the streams may take to end.
	endTimeout = 2 * time.Second
	// maxAnswers is how many answers to actions are kept, and answerFor how long they are shown.
	maxAnswers = 3
	answerFor  = time.Minute
)

// Home is what a console reads and does. Its functions are called from several goroutines at once.
type Home struct {
	// Title is the heading of every page, such as "local run".
	Title string
	// Base is the path of the console without a trailing slash; empty at the root.
	Base string
	// Public accepts requests under any IP address, as behind a forwarded port; otherwise only
	// those to a loopback address.
	Public bool
	// View reads the state; it is called once a second.
	View func(context.Context) View
	// Parked lists the parked aggregates, and Show returns one of them with its dead letters. Nil:
	// the page shows their number only.
	Parked func(context.Context) ([]Parked, error)
	Show   func(ctx context.Context, aggregate string) (Parked, error)
	// Trace follows an aggregate; nil: there is no such page.
	Trace func(ctx context.Context, aggregate string) (Trace, error)
	// Replay and Drop are the commands `parked replay` and `parked drop`. They return what the
	// command prints. Nil: the console only reads.
	Replay func(ctx context.Context, aggregate string) (string, error)
	Drop   func(ctx context.Context, aggregate, message string) (string, error)
	// Harms are what Harm can do to a local stack.
	Harms []Harm
	Harm  func(ctx context.Context, kind string) (string, error)
}

// Harm is a kind of harm that a button does.
type Harm struct{ Kind, Says string }

// Console serves the pages of a home.
type Console struct {
	home    Home
	token   string
	watched atomic.Int64 // open streams
	lookUps lookUps
	ended   chan struct{} // closed when the console ends
	ending  sync.Once     // closes it

	mu      sync.Mutex // guards everything below
	view    View
	history history
	answers []answer
	newer   chan struct{}                       // closed when the next View is there
	pages   map[string]func() map[string]string // renders the regions of a page, once
}

// answer is the result of an action.
type answer struct {
	At     time.Time
	Did    string
	Text   string
	Failed bool
}

// New returns the console of a home. It shows an empty View until Run has read the first one.
func New(h Home) *Console {
	return &Console{home: h, token: rand.Text(), newer: make(chan struct{}), ended: make(chan struct{}), pages: map[string]func() map[string]string{}}
}

// Run reads a View each second until ctx ends.
func (c *Console) Run(ctx context.Context) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		c.read(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (c *Console) read(ctx context.Context) {
	reading, cancel := context.WithTimeout(ctx, viewTimeout)
	defer cancel()
	view := c.home.View(reading)
	if ctx.Err() != nil {
		return
	}
	if view.At.IsZero() {
		view.At = time.Now()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.view = view
	c.history.add(time.Now(), view)
	c.announce()
}

// announce wakes the streams. The caller holds mu.
func (c *Console) announce() {
	clear(c.pages)
	close(c.newer)
	c.newer = make(chan struct{})
}

// next returns a channel that is closed when there is something newer than now.
func (c *Console) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newer
}

// answered records the result of an action for the pages.
func (c *Console) answered(did, text string, err error) {
	a := answer{At: time.Now(), Did: did, Text: text}
	if err != nil {
		a.Text, a.Failed = err.Error(), true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers = append([]answer{a}, c.answers...)
	c.answers = c.answers[:min(len(c.answers), maxAnswers)]
	c.announce()
}

// recentAnswers returns the answers that are still shown. The caller holds mu.
func (c *Console) recentAnswers() (recent []answer) {
	for _, a := range c.answers {
		if time.Since(a.At) < answerFor {
			recent = append(recent, a)
		}
	}
	return recent
}

// ErrNotLoopback means that a console which changes things was to listen for other machines.
var ErrNotLoopback = errors.New("a console with actions listens on a loopback address only, such as 127.0.0.1:8090")

// Listen returns a listener on a loopback address; port 0 takes a free one. Errors: among others
// [ErrNotLoopback].
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w", addr, err)
	}
	if !loopback(host) {
		return nil, fmt.Errorf("listen on %q: %w", addr, ErrNotLoopback)
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	return listener, nil
}

// Serve reads Views and serves the console on a listener until ctx ends. It closes the listener.
func (c *Console) Serve(ctx context.Context, listener net.Listener, log *slog.Logger) error {
	reading, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { c.Run(reading) })
	server := &http.Server{
		Handler: c.Handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	running.Go(func() {
		<-reading.Done()
		c.End()
		// The streams send what is left and end.
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		if server.Shutdown(ending) != nil {
			_ = server.Close() // what has not ended by now is cut
		}
	})
	err := server.Serve(listener)
	stop()
	running.Wait()
	if !errors.Is(err, http.ErrServerClosed) || ctx.Err() == nil {
		return fmt.Errorf("serve the console on %s: %w", listener.Addr(), err)
	}
	return nil
}

// End ends the streams after what they have to send. It is for handlers that another server serves;
// Serve does it.
func (c *Console) End() { c.ending.Do(func() { close(c.ended) }) }
