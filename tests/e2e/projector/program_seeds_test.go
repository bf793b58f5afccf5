package projector_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/program"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// tracked is a timeline, under its name, with an index that its declaration may have or not.
type tracked struct {
	projection.Timeline
	indexed bool
}

func (p tracked) Collections() []projection.Collection {
	c := projection.Collection{Name: "timeline"}
	if p.indexed {
		c.Indexes = []projection.Index{{Keys: bson.D{{Key: "lastType", Value: 1}}}}
	}
	return []projection.Collection{c}
}

// unreliable is a program with random faults, until they are over.
type unreliable struct {
	g      *program.Program
	mu     sync.Mutex
	random *rand.Rand     // guarded by mu
	over   bool           // guarded by mu
	met    map[string]int // the faults, by name; guarded by mu
	next   http.Handler
	other  http.Handler // the program under another declaration
}

func (u *unreliable) fault() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over {
		return ""
	}
	names := []string{"slow", "hung", "500", "400", "503", "truncated", "lost", "twice", "killed", "redeclared"}
	n := u.random.IntN(40)
	if n >= len(names) {
		return ""
	}
	u.met[names[n]]++
	return names[n]
}

func (u *unreliable) swap() (handler http.Handler) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.next, u.other = u.other, u.next
	return u.next
}

func (u *unreliable) now() http.Handler {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.next
}

func (u *unreliable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, size := asked(r)
	switch u.fault() {
	case "slow":
		time.Sleep(time.Duration(50+size%1500) * time.Millisecond)
	case "hung":
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case "500":
		http.Error(w, "a bad day", http.StatusInternalServerError)
		return
	case "400":
		http.Error(w, "a bad day", http.StatusBadRequest)
		return
	case "503":
		w.Header().Set("Retry-After", "2")
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return
	case "lost":
		panic(http.ErrAbortHandler)
	case "truncated", "twice":
		program.AnswerDamaged(w, r, u.now(), size%2 == 0)
		return
	case "killed":
		go u.g.Die()
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case "redeclared":
		u.swap()
	}
	u.now().ServeHTTP(w, r)
}

// G1 to G6: with a program that is slow, hangs, fails, loses and damages answers, dies and comes
// back under another declaration, each event of a healthy aggregate takes effect once and in order;
// the two poison events park their aggregates and nothing else for good.
func TestG1G2G3G5AnUnreliableProgram(t *testing.T) {
	seeds, first := 12, uint64(0)
	if text := os.Getenv("PROGRAM_SEEDS"); text != "" {
		var err error
		seeds, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	met := map[string]int{}
	for seed := first; seed < first+uint64(seeds); seed++ {
		subtest(t, fmt.Sprint("seed ", seed), func(w *world.World) {
			const aggregates, events = 12, 8
			random := rand.New(rand.NewPCG(seed, 36))
			key := []envelope.SessionKey{{}, envelope.Buckets(1), envelope.Buckets(3)}[random.IntN(3)]
			u := &unreliable{random: rand.New(rand.NewPCG(seed, 37)), met: map[string]int{}}
			u.g = w.StartProgram(tracked{})
			defer u.g.End()
			u.next, u.other = w.Serves(tracked{}), w.Serves(tracked{indexed: true})
			p := w.StartProjector(func(c *projector.Config, o *projector.Options) {
				u.g.Runs("timeline")(c, o)
				c.UndecidedAfter = time.Minute
			})
			publish(w, event("first", 1, "T"))
			w.Completed(1)
			u.g.Replace(wrong{g: u.g, next: u})
			positions := watch(w, "timeline")
			for n := 1; n <= events; n++ {
				some := rounds(aggregates, n, n)
				if n == 3 {
					some = append(some, event("thrower", 1, "Throws"), event("killer", 1, "Kills"), event("killer", 2, "T"))
				}
				random.Shuffle(len(some)-len(some)/4, func(i, j int) { some[i], some[j] = some[j], some[i] })
				publish(w, inSessions(key, some...)...)
				w.Pass(time.Duration(random.IntN(8000)) * time.Millisecond)
			}
			u.mu.Lock()
			u.over = true
			u.mu.Unlock()
			for n := 2; !hasParked(w, "thrower") || !hasParked(w, "killer"); n++ {
				require.Less(w, n, 300, "the poison is not found")
				publish(w, inSessions(key, event("first", n, "T"))...)
				w.Pass(5 * time.Second)
			}
			w.Eventually("all is decided", func() bool {
				s := w.Bus.Stats(world.SubscriptionPath)
				return s.Active+s.Locked == 0
			})
			// What a damaged answer has parked is replayed; the poison stays. While the program
			// starts again after the event that kills it, a replay fails, and the command asks to
			// be run again.
			complete := func() bool {
				for a := range aggregates {
					if w.TimelineOf(fmt.Sprint("a", a)).Events < events {
						return false
					}
				}
				return true
			}
			for n := 0; n == 0 || !complete(); n++ {
				require.Less(w, n, 5, "an aggregate cannot be replayed")
				w.OperateProjector(u.g.Runs("timeline"), "parked", "replay", "--all")
			}
			for a := range aggregates {
				id := fmt.Sprint("a", a)
				require.EqualValues(w, events, w.TimelineOf(id).Events, id)
			}
			for id, seen := range positions() {
				require.IsNonDecreasing(w, seen, id)
			}
			require.True(w, hasParked(w, "thrower") && hasParked(w, "killer"))
			// A message that arrives while its session is released goes back, and no delivery count
			// rises.
			require.Zero(w, p.MustEnd().Redelivered)
			for name, n := range u.met {
				met[name] += n
			}
		})
	}
	if seeds >= 12 && len(met) > 0 { // without virtual time, as beside the race detector, no seed runs
		for _, name := range []string{"slow", "hung", "500", "400", "503", "truncated", "lost", "twice", "killed", "redeclared"} {
			require.Positive(t, met[name], "no seed has the fault %s", name)
		}
	}
}

func hasParked(w *world.World, aggregate string) bool {
	return parked(w, "timeline", aggregate) != (parkedRecord{})
}
