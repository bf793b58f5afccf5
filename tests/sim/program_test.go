package sim

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	protocol "github.com/sluice-cdc/sluice/projector/projection/serve"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/program"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// programs are the programs of a run's projections, one beside each projector, and what goes wrong
// with them. All of it is empty if projections are part of their projectors.
type programs struct {
	mu      sync.Mutex
	all     map[string]*sidecar // by the name of the projector; guarded by mu
	failing []*failing          // guarded by mu
	fatal   map[string]bool     // whether the poison of an aggregate is still fatal; guarded by mu
}

// The programs that operators' commands and the second version use. Nothing goes wrong with them.
const (
	operatorsProgram = "operator"
	revisedProgram   = "revised"
)

// failing is a fault of the answers, while it lasts.
type failing struct {
	step   plan.Step
	random *rand.Rand // guarded by programs.mu
}

// sidecar is one program.
type sidecar struct {
	program.Program
	w      *world
	mu     sync.Mutex
	code   []http.Handler  // the same code under two declarations; guarded by mu
	failed map[string]bool // events that failed alone by a failed answer; guarded by mu
}

// indexed is a projection with an index that it declares, or not.
type indexed struct {
	projection.OneDocument
	indexes []projection.Index
}

// Collections implements [projection.Stored].
func (p indexed) Collections() []projection.Collection {
	return []projection.Collection{{Name: p.Collection(), KeyedBy: projection.ByAggregate, Indexes: p.indexes}}
}

// programOf returns the program beside a projector; nil if the projection is a part of it.
func (w *world) programOf(name string) *sidecar {
	if !w.plan.Settings.Program {
		return nil
	}
	w.programs.mu.Lock()
	defer w.programs.mu.Unlock()
	if p := w.programs.all[name]; p != nil {
		return p
	}
	var code projection.OneDocument = brittleDocument{projection.Timeline{}, w, nil}
	if name == revisedProgram {
		code = revised{}
	}
	p := &sidecar{w: w, failed: map[string]bool{}}
	for _, indexes := range [][]projection.Index{nil, {{Keys: bson.D{{Key: "lastType", Value: 1}}}}} {
		handler, err := protocol.Handler(indexed{code, indexes})
		require.NoError(w, err)
		p.code = append(p.code, handler)
	}
	w.programs.all[name] = p
	if name == operatorsProgram || name == revisedProgram {
		p.Start(p.code[0])
	} else {
		p.Start(p)
	}
	return p
}

// runs has a projector or a command use the program.
func (p *sidecar) runs(c *projector.Config, o *projector.Options) {
	if p != nil {
		p.Runs(c.Projection)(c, o)
	}
}

// endPrograms ends every program for good.
func (w *world) endPrograms() {
	for _, p := range w.programs.all {
		p.End()
	}
}

// programFault makes a fault of program.go of package plan.
func (w *world) programFault(a *agenda, step plan.Step) {
	d, s := step.For.Duration, &w.programs
	switch step.Kind {
	case plan.FailAnswers:
		f := &failing{step, rand.New(rand.NewPCG(step.Random, 0xda))}
		s.mu.Lock()
		s.failing = append(s.failing, f)
		s.mu.Unlock()
		w.later(a, d, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.failing = slices.DeleteFunc(s.failing, func(other *failing) bool { return other == f })
		})
	case plan.KillProgram:
		p := w.programOf(step.Of)
		p.Stop()
		w.met.add("killed programs", 1)
		if step.Takes {
			w.met.add("programs of another declaration", 1)
			p.mu.Lock()
			p.code[0], p.code[1] = p.code[1], p.code[0]
			p.mu.Unlock()
		}
		w.later(a, d, func() { p.Start(p) })
	default:
		w.poisonProgram(a, step)
	}
}

// poisonProgram commits the events of an aggregate of which one makes programs fail: for a while,
// or until all else is at rest. Its aggregate is parked by then, or not: that depends on how often
// it is asked for, and on whether others pass.
func (w *world) poisonProgram(a *agenda, step plan.Step) {
	reason := "Undecided"
	if step.Manner == plan.Nonsensical {
		reason = "ProjectionInvalid"
	}
	set := func(fatal bool) {
		w.programs.mu.Lock()
		defer w.programs.mu.Unlock()
		w.programs.fatal[step.Aggregate] = fatal
	}
	set(true)
	w.fails(a, step, step.Manner, checker.Sick{Reason: reason, Ends: step.Manner == plan.Kills}, func() { set(false) })
}

// asked is an event of a call, as far as faults depend on it.
type asked struct {
	Type, Subject string
	Data          json.RawMessage
}

// poisonings are how the first events at which a program fails are counted, by what it does.
var poisonings = map[string]string{
	plan.Throws: "events at which a program throws", plan.Kills: "that kill it", plan.Nonsensical: "that it answers wrongly",
}

// poisonOf returns what the program does with the first event that is still fatal.
func (w *world) poisonOf(events []asked) string {
	w.programs.mu.Lock()
	defer w.programs.mu.Unlock()
	for _, e := range events {
		if counted, fails := poisonings[e.Type]; fails && w.programs.fatal[e.Subject] {
			w.met.add(counted, 1)
			return e.Type
		}
	}
	return ""
}

// failure returns how a call fails; empty: it does not.
func (p *sidecar) failure(events []asked) string {
	s := &p.w.programs
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.failing {
		if f.random.Float64() >= f.step.Chance {
			continue
		}
		if len(events) == 1 {
			key := events[0].Subject + string(events[0].Data)
			if p.failed[key] {
				continue
			}
			p.failed[key] = true
		}
		p.w.met.add(failedAnswers, 1)
		return f.step.Answer
	}
	return ""
}

// ServeHTTP answers a call, or fails.
func (p *sidecar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	code := p.code[0]
	p.mu.Unlock()
	if r.Method != http.MethodPost {
		code.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	var events []asked
	if err := json.Unmarshal(body, &events); err != nil {
		p.w.Errorf("a call of a program: %v", err)
	}
	how := p.w.poisonOf(events)
	if how == "" {
		how = p.failure(events)
	}
	p.answer(w, r, code, how)
}

func (p *sidecar) answer(w http.ResponseWriter, r *http.Request, code http.Handler, how string) {
	switch how {
	case plan.Slow:
		pause(r.Context(), 2*time.Second)
	case plan.Hung:
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case plan.Broken, plan.Throws:
		http.Error(w, "it throws", http.StatusInternalServerError)
		return
	case plan.Malformed:
		http.Error(w, "it does not understand", http.StatusBadRequest)
		return
	case plan.Nonsensical:
		_, _ = io.WriteString(w, `{"results":[{"writes":"none"}]}`)
		return
	case plan.Busy:
		w.Header().Set("Retry-After", "2")
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return
	case plan.Lost:
		panic(http.ErrAbortHandler)
	case plan.Kills:
		go p.Die()
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case plan.Truncated, plan.Twice:
		program.AnswerDamaged(w, r, code, how == plan.Twice)
		return
	}
	code.ServeHTTP(w, r.WithContext(context.WithoutCancel(r.Context())))
}
