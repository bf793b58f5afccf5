package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer/internal/broker"
	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// memoryBroker accepts batches of at most capacity messages. before decides the outcome of each
// send.
type memoryBroker struct {
	capacity int
	before   func(ctx context.Context, messages []string) outcome

	mu      sync.Mutex
	arrived [][]string // the stored batches, in order of arrival, each "session/number"
}

type outcome int

const (
	stored    outcome = iota
	refused           // not stored, and the sender gets an error
	unknown           // stored, and the acknowledgement is lost
	busy              // not stored, busy
	never             // not stored, permanently refused
	silent            // not stored, and no response
	objecting         // not stored, and the link is closed with a reason
)

var errSend = errors.New("connection lost")

type memoryBatch struct {
	capacity int
	messages []string
	size     int // of an unbatched message
}

func (b *memoryBatch) AddUnbatched(m *azservicebus.Message) {
	b.messages = append(b.messages, fmt.Sprintf("%s/%d", *m.SessionID, m.ApplicationProperties["version"]))
	b.size = len(m.Body)
}

func (b *memoryBatch) Add(m *azservicebus.Message) error {
	if len(b.messages) == b.capacity || (len(m.Body) > 1000 && len(b.messages) > 0) {
		return broker.ErrFull
	}
	if len(m.Body) > 1000 {
		return broker.ErrOversized
	}
	b.messages = append(b.messages, fmt.Sprintf("%s/%d", *m.SessionID, m.ApplicationProperties["version"]))
	return nil
}

func (b *memoryBatch) Split(n int) (first, rest broker.Batch, err error) {
	return &memoryBatch{capacity: b.capacity, messages: b.messages[:n]}, &memoryBatch{capacity: b.capacity, messages: b.messages[n:]}, nil
}

func (b *memoryBatch) Content() (contentType string, body []byte, err error) {
	return "text/plain", []byte(b.messages[0]), nil
}

func (b *memoryBatch) MaxMessageBytes() uint64 { return 5000 }

func (b *memoryBatch) Extract(n int) (one broker.Batch, size int) {
	if b.size > 0 {
		return nil, 0
	}
	return &memoryBatch{capacity: b.capacity, messages: b.messages[n : n+1]}, 100
}

func (m *memoryBroker) SendIsolated(ctx context.Context, b broker.Batch) error { return m.Send(ctx, b) }

func (m *memoryBroker) NewBatch(context.Context) (broker.Batch, error) {
	return &memoryBatch{capacity: m.capacity}, nil
}

func (m *memoryBroker) Send(ctx context.Context, b broker.Batch) error {
	messages := b.(*memoryBatch).messages
	if b.(*memoryBatch).size > 5000 {
		return broker.ErrOversized
	}
	o := stored
	if m.before != nil {
		o = m.before(ctx, messages)
	}
	switch o {
	case refused:
		return errSend
	case busy:
		return broker.ErrBusy
	case never:
		return broker.ErrRefused
	case silent:
		return fmt.Errorf("%w: %w", broker.ErrUnknown, ctx.Err())
	case objecting:
		return fmt.Errorf("%w: %w: %w", broker.ErrUnknown, broker.ErrObjection, errSend)
	case stored, unknown:
	}
	m.mu.Lock()
	m.arrived = append(m.arrived, messages)
	m.mu.Unlock()
	if o == unknown {
		return fmt.Errorf("%w: %w", broker.ErrUnknown, errSend)
	}
	return nil
}

type openFence struct{}

func (openFence) Deadline() time.Time { return time.Now().Add(time.Minute) }

func testConfig() Config {
	return Config{
		Lanes: 4, MaxLanes: 16, Scope: ScopeSession, Format: envelope.BSON, BatchMessages: 100, MaxEvents: 1000, MaxBytes: 1 << 20,
		StallAfter: time.Hour, RefusedAfter: 5 * time.Minute,
	}
}

func start(config Config, b broker.Broker, f Fence) *Publisher {
	return New(config, b, f, checkpoint.Progress{}, NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
}

// run starts a publisher; the channel receives its result.
func run(ctx context.Context, p *Publisher) <-chan error {
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	return done
}

func event(aggregate string, version, sequence int) (envelope.Change, checkpoint.Progress) {
	body, err := bson.Marshal(bson.D{{Key: "operationType", Value: "insert"}})
	if err != nil {
		panic(err)
	}
	position := fmt.Sprintf("82%06X", sequence)
	return envelope.Change{
		Stream: "s", Token: position, Position: position, Epoch: 1, Aggregate: aggregate, Operation: envelope.Insert,
		Type: "t", Version: int64(version), Body: body,
	}, checkpoint.Progress{Position: position}
}

// publishEvent publishes an [event].
func publishEvent(t *testing.T, p *Publisher, aggregate string, version, sequence int) {
	t.Helper()
	c, progress := event(aggregate, version, sequence)
	require.NoError(t, p.Publish(t.Context(), c, progress))
}

// publishInTurn publishes events of so many sessions in turn: a0, a1 and so on.
func publishInTurn(t *testing.T, p *Publisher, sessions, events int) {
	t.Helper()
	for n := range events {
		publishEvent(t, p, fmt.Sprintf("a%d", n%sessions), n/sessions+1, n)
	}
}

// finish waits until a publisher that runs has published everything, and requires that it is so
// many events.
func finish(t *testing.T, p *Publisher, done <-chan error, events int) {
	t.Helper()
	p.Close()
	require.NoError(t, <-done)
	require.EqualValues(t, events, p.Progress().Published)
}

// G2: no matter which sends fail, and whether or not the broker stored what failed, a session's
// batches arrive in order. Each either repeats the previous one, unchanged or its first part, or
// continues exactly where that one ended.
func TestG2SessionsArriveInOrderAfterAnyResend(t *testing.T) {
	for _, scope := range []Scope{ScopeSession, ScopeMixed, ScopeAuto} {
		for seed := range uint64(50) {
			virtualtime.Test(t, func(t *testing.T) {
				random, faults := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
				var mu sync.Mutex
				bus := &memoryBroker{capacity: 7, before: func(context.Context, []string) outcome {
					mu.Lock()
					o, delay := outcome(faults.IntN(3)), time.Duration(faults.IntN(50))*time.Millisecond
					mu.Unlock()
					time.Sleep(delay) // the network's latency, in virtual time
					return o
				}}
				config := testConfig()
				config.Scope = scope
				p := start(config, bus, openFence{})
				done := run(t.Context(), p)

				versions := map[string]int{}
				for n := range 400 {
					aggregate := fmt.Sprintf("a%d", random.IntN(9))
					versions[aggregate]++
					publishEvent(t, p, aggregate, versions[aggregate], n)
				}
				finish(t, p, done, 400)
				require.Zero(t, p.InFlight())
				judgeOrder(t, bus.arrived, versions)
			})
		}
	}
}

func judgeOrder(t *testing.T, arrived [][]string, versions map[string]int) {
	t.Helper()
	type stretch struct{ first, last int }
	sent := map[string]stretch{}
	for _, batch := range arrived {
		now := map[string]stretch{}
		for _, m := range batch {
			session, number, _ := strings.Cut(m, "/")
			n, err := strconv.Atoi(number)
			require.NoError(t, err)
			at, begun := now[session]
			if !begun {
				at = stretch{n, n - 1}
			}
			require.Equal(t, at.last+1, n, "within a batch of session %s", session)
			now[session] = stretch{at.first, n}
		}
		for session, s := range now {
			before := sent[session]
			if s.first == before.first {
				require.LessOrEqual(t, s.last, before.last, "sent again is what was sent, or its beginning")
			} else {
				require.Equal(t, before.last+1, s.first, "session %s goes on", session)
			}
			sent[session] = s
		}
	}
	reached := map[string]int{}
	for session, s := range sent {
		reached[session] = s.last
	}
	require.Equal(t, versions, reached)
}

// G4: a leader that cannot prove its leadership sends nothing, not even what is queued.
func TestG4NothingIsSentPastTheFence(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		bus := &memoryBroker{capacity: 10, before: func(context.Context, []string) outcome {
			t.Error("sent past the fence")
			return stored
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		p := start(testConfig(), bus, movingFence{time.Now().Add(-4 * time.Second)})
		done := run(ctx, p)
		publishEvent(t, p, "a0", 1, 1)
		require.ErrorIs(t, <-done, context.DeadlineExceeded)
	})
}

func TestPublishBlocksAtTheLimits(t *testing.T) {
	for name, bound := range map[string]func(*Config, int64){
		"events": func(c *Config, _ int64) { c.MaxEvents = 3 },
		"bytes":  func(c *Config, size int64) { c.MaxBytes = 3*size + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			virtualtime.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				bus := &memoryBroker{capacity: 10, before: func(context.Context, []string) outcome {
					<-release
					return stored
				}}
				config := testConfig()
				c, _ := event("a0", 1, 1)
				bound(&config, int64(len(c.Body)))
				p := start(config, bus, openFence{})
				done := run(t.Context(), p)
				var published atomic.Int64
				var publishing sync.WaitGroup
				publishing.Go(func() {
					defer p.Close()
					for n := range 10 {
						c, progress := event("a0", n+1, n)
						if p.Publish(t.Context(), c, progress) != nil {
							return
						}
						published.Add(1)
					}
				})
				virtualtime.Wait()
				require.Equal(t, int64(3), published.Load())
				close(release)
				publishing.Wait()
				require.NoError(t, <-done)
				require.Equal(t, int64(10), published.Load())
			})
		})
	}
}

// G6: an event that is certainly too large is recognised by the size of its body and not encoded,
// which would need more memory than a small container has. Everything before it is published.
func TestG6AnEventThatIsFarTooLargeIsNotEncoded(t *testing.T) {
	for format, size := range map[envelope.Format]int{envelope.JSON: 25_005, envelope.BSON: 5001} {
		bus := &memoryBroker{capacity: 10}
		config := testConfig()
		config.Format = format
		p := start(config, bus, openFence{})
		for n := range 3 {
			c, progress := event("big-one", n+1, n)
			if n == 2 {
				c.Body = make([]byte, size) // not BSON: encoding it fails
			}
			require.NoError(t, p.Publish(t.Context(), c, progress))
		}
		err := p.Run(t.Context())
		require.ErrorIs(t, err, broker.ErrOversized)
		require.ErrorContains(t, err, `insert of aggregate "big-one" at 82000002`)
		require.ErrorContains(t, err, "ON_OVERSIZE=claimcheck")
		require.EqualValues(t, 2, p.Progress().Published)
	}
}

// G2: a message that is too large for a batch but not for the entity is sent unbatched, in its
// place.
func TestG2ALargeEventIsSentUnbatchedInItsPlace(t *testing.T) {
	for _, scope := range []Scope{ScopeSession, ScopeMixed, ScopeAuto} {
		bus := &memoryBroker{capacity: 10}
		config := testConfig()
		config.Scope = scope
		p := start(config, bus, openFence{})
		for n := range 3 {
			c, progress := event("a", n+1, n)
			if n == 1 {
				body, err := bson.Marshal(bson.D{{Key: "pad", Value: make([]byte, 2000)}})
				require.NoError(t, err)
				c.Body = body
			}
			require.NoError(t, p.Publish(t.Context(), c, progress))
		}
		p.Close()
		require.NoError(t, p.Run(t.Context()))
		require.Equal(t, [][]string{{"a/1"}, {"a/2"}, {"a/3"}}, bus.arrived)
		require.Equal(t, int64(3), p.Progress().Published)
	}
}

func TestAPublisherWithoutProgressGivesUp(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		bus := &memoryBroker{capacity: 10, before: func(context.Context, []string) outcome {
			if broken.Load() {
				return refused
			}
			return stored
		}}
		config := testConfig()
		config.StallAfter = time.Minute
		p := start(config, bus, openFence{})
		done := run(t.Context(), p)
		time.Sleep(10 * time.Minute) // in virtual time: an idle publisher is not stalled
		publishEvent(t, p, "a0", 1, 1)
		time.Sleep(10 * time.Minute)
		broken.Store(true)
		publishEvent(t, p, "a0", 2, 2)
		begun := time.Now()
		require.ErrorIs(t, <-done, ErrStalled)
		require.GreaterOrEqual(t, time.Since(begun), time.Minute)
		require.LessOrEqual(t, time.Since(begun), 75*time.Second)
		require.Equal(t, int64(1), p.Progress().Published)
	})
}
