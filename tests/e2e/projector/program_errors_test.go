package projector_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/program"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// wrong answers calls in which an event has a type that goes wrong, and leaves the others to the
// program.
type wrong struct {
	g    *program.Program
	next http.Handler
	// until ends the calls that hang.
	until chan struct{}
}

func (h wrong) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	events, _ := asked(r)
	for _, e := range events {
		switch e.Type {
		case "Throws":
			http.Error(w, "TypeError: undefined is not a function", http.StatusInternalServerError)
		case "TooLarge":
			http.Error(w, "request entity too large", http.StatusRequestEntityTooLarge)
		case "Truncates":
			w.Header().Set("Content-Length", "100000")
			_, _ = w.Write([]byte(`{"declaration":`))
		case "Malformed":
			_, _ = w.Write([]byte(`{"results":[]}`))
		case "Redirects":
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		case "Kills":
			go h.g.Die()
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		case "Hangs":
			select {
			case <-h.until:
			case <-r.Context().Done():
			}
			panic(http.ErrAbortHandler)
		default:
			continue
		}
		return
	}
	h.next.ServeHTTP(w, r)
}

// asked returns the events of a call, of which a GET has none, and the call's size.
func asked(r *http.Request) (events []struct{ Type, Subject string }, size int) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	if r.Method == http.MethodPost && json.Unmarshal(body, &events) != nil {
		panic("no events")
	}
	return events, len(body)
}

// goesWrong makes a projector run a timeline in which some types of events go wrong.
func goesWrong(w *world.World, change func(*projector.Config)) (g *program.Program, p *world.Projector, end func()) {
	w.Helper()
	g = w.StartProgram(projection.Timeline{})
	until := make(chan struct{})
	g.Replace(wrong{g: g, next: w.Serves(projection.Timeline{}), until: until})
	p = w.StartProjector(func(c *projector.Config, o *projector.Options) {
		g.Runs("timeline")(c, o)
		if change != nil {
			change(c)
		}
	})
	return g, p, func() {
		close(until)
		g.End()
	}
}

// G5, G6: whatever a call fails with, its events are tried in ever smaller calls, and the one that
// fails alone while others pass is parked; the others of the call take effect.
func TestG5AProgramsPoisonIsFoundInItsCall(t *testing.T) {
	for kind, reason := range map[string]string{
		"TooLarge": "ProjectionInvalid", "Malformed": "ProjectionInvalid", "Redirects": "ProjectionInvalid",
		"Throws": "Undecided", "Truncates": "ProcessEnded", "Kills": "ProcessEnded", "Hangs": "Undecided",
	} {
		subtest(t, kind, func(w *world.World) {
			_, _, end := goesWrong(w, func(c *projector.Config) { c.UndecidedAfter = 2 * time.Minute })
			defer end()
			events := rounds(40, 1, 1)
			events[17] = event("bad", 1, kind)
			publishTogether(w, append(events, event("bad", 2, "T"))...)
			w.Completed(39)
			for n := 1; w.Bus.Stats(world.SubscriptionPath).DeadLettered < 2; n++ { // while others pass
				require.Less(w, n, 100)
				publishTogether(w, event("neighbour", n, "T"))
				w.Completed(39 + n)
				w.Pass(5 * time.Second)
			}
			require.Equal(w, []string{"bad/1 " + reason, "bad/2 AggregateParked"}, deadLetters(w))
			require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Redelivered)
		})
	}
}

// G5: an event whose call is not answered is called for again once that call has timed out. The
// time-out is no failure of the next attempt, which would park the event: UNDECIDED_AFTER is over.
func TestG5ALateTimeoutParksNothing(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		g, _, end := goesWrong(w, func(c *projector.Config) { c.UndecidedAfter = 10 * time.Second })
		defer end()
		const hanging = 8
		hung := map[string]bool{} // by aggregate; guarded by mu
		var mu sync.Mutex
		works := g.Replace(nil)
		g.Replace(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			events, _ := asked(r)
			mu.Lock()
			hangs := len(events) == 1 && strings.HasPrefix(events[0].Subject, "hangs") && !hung[events[0].Subject]
			if hangs {
				hung[events[0].Subject] = true
			}
			mu.Unlock()
			if hangs {
				<-r.Context().Done()
				panic(http.ErrAbortHandler)
			}
			works.ServeHTTP(w, r)
		}))
		for n := 1; n <= 40; n++ { // others pass
			changes := []envelope.Change{event("neighbour", n, "T")}
			if n <= hanging {
				changes = append(changes, event(fmt.Sprint("hangs", n), 1, "T"))
			}
			publish(w, changes...)
			w.Pass(time.Second)
		}
		w.Completed(40 + hanging)
		require.Len(w, hung, hanging)
		require.Empty(w, deadLetters(w))
	})
}

// G5: while no event passes, nothing is parked or dead-lettered, no delivery count rises, and the
// projector is not ready. Everything takes effect once the program works.
func TestG1G5NothingIsBlamedWhileTheProgramFails(t *testing.T) {
	for name, breaks := range map[string]http.Handler{
		"every call has a 400":    http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadRequest) }),
		"every call has a 500":    http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) }),
		"every answer is wrong":   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{}`)) }),
		"every answer ends early": http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
		"it asks to wait": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			http.Error(w, "busy", http.StatusServiceUnavailable)
		}),
		"it does not run": nil,
	} {
		subtest(t, name, func(w *world.World) {
			g, p, end := goesWrong(w, func(c *projector.Config) { c.UndecidedAfter = time.Minute })
			defer end()
			publish(w, event("a", 1, "T"))
			w.Completed(1)
			works := g.Replace(breaks)
			publish(w, event("a", 2, "T"), event("b", 1, "T"))
			publish(w, event("c", 1, "T"))
			w.Pass(time.Hour)
			require.Equal(w, 1, w.Bus.Stats(world.SubscriptionPath).Completed)
			require.Contains(w, p.Log.Text(), "projection program")
			g.Replace(works)
			w.Completed(4)
			counted := p.MustEnd()
			require.Zero(w, counted.DeadLettered+w.Bus.Stats(world.SubscriptionPath).DeadLettered)
			require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Redelivered)
			require.Equal(w, int64(2), w.TimelineOf("a").Events)
		})
	}
}

// The projector waits as long as the program asks it to, and not longer than half a minute.
func TestG5AProjectorWaitsAsLongAsTheProgramAsks(t *testing.T) {
	for header, longest := range map[string]time.Duration{"10": 16 * time.Second, "86400": 37 * time.Second} {
		inVirtualTime(t, func(w *world.World) {
			g, _, end := goesWrong(w, nil)
			defer end()
			publish(w, event("a", 1, "T"))
			w.Completed(1)
			var called []time.Time
			works := g.Replace(nil)
			g.Replace(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if called = append(called, time.Now()); len(called) < 2 {
					w.Header().Set("Retry-After", header)
					http.Error(w, "busy", http.StatusTooManyRequests)
					return
				}
				works.ServeHTTP(w, r)
			}))
			publish(w, event("a", 2, "T"))
			w.Completed(2)
			require.Len(w, called, 2)
			require.GreaterOrEqual(w, called[1].Sub(called[0]), min(longest-6*time.Second, 30*time.Second))
			require.LessOrEqual(w, called[1].Sub(called[0]), longest)
		})
	}
}

// After another declaration nothing is written before that was read again; one that cannot follow
// ends the projector.
func TestG3AnotherDeclarationIsReadBeforeAnyWrite(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		g := w.StartProgram(grown{})
		defer g.End()
		p := w.StartProjector(g.Runs("grown"))
		publish(w, event("a", 1, "T"))
		w.Completed(1)
		g.Replace(w.Serves(grown{more: true}))
		publish(w, event("a", 2, "T"))
		w.Completed(2)
		names, err := w.Client.Database(world.ReadModel).ListCollectionNames(w.Context(), map[string]any{})
		require.NoError(w, err)
		require.Contains(w, names, "grown_more")
		require.NotContains(w, deadLetters(w), "a")
		require.Contains(w, p.Log.Text(), "has another declaration")

		g.Replace(w.Serves(grown{keyed: "other"}))
		publish(w, event("a", 3, "T"))
		require.ErrorContains(w, refusal(w, p), "another keyedBy")
		require.Equal(w, 2, w.Bus.Stats(world.SubscriptionPath).Completed)
	})
}

// grown is a projection of several documents whose declaration changes.
type grown struct {
	more  bool
	keyed string
}

func (grown) Name() string { return "grown" }

func (p grown) Collections() []projection.Collection {
	all := []projection.Collection{{Name: "grown", KeyedBy: p.keyed}}
	if p.more {
		all = append(all, projection.Collection{Name: "grown_more"})
	}
	return all
}

func (p grown) Project(e projection.Event) ([]projection.Write, error) {
	all := []projection.Write{projection.Update("grown", e.Aggregate, projection.Inc("events", 1))}
	if p.more {
		all = append(all, projection.Update("grown_more", e.Aggregate, projection.Inc("events", 1)))
	}
	return all, nil
}

// No session is accepted before the declaration was read, and one of another name is refused.
func TestAProjectorWaitsForItsProgram(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		g := w.StartProgram(projection.Timeline{})
		defer g.End()
		g.Stop()
		p := w.StartProjector(g.Runs("timeline"))
		publish(w, event("a", 1, "T"))
		w.Pass(10 * time.Minute)
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Locked+w.Bus.Stats(world.SubscriptionPath).HeldSessions)
		g.Start(w.Serves(projection.Timeline{}))
		w.Completed(1)
		p.MustEnd()

		config, o := w.ProjectorConfig(), projector.Options{}
		g.Runs("another")(&config, &o)
		require.ErrorContains(w, projector.Run(w.Context(), config, o), "must be equal")
	})
}
