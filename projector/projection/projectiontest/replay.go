package projectiontest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/build"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/memory"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

const (
	// shuffles is the number of random interleavings, besides the two extremes.
	shuffles = 20
	// prefixes is the largest number of prefixes after which everything is delivered again. If
	// there are more, some are skipped.
	prefixes = 100
	// goroutines is how many project at once.
	goroutines = 4
)

// one projects a copy of one event, and reports a projection that changes it.
func (k *kit) one(i int) ([]projection.Write, error) {
	e := k.events[i]
	e.Body = bytes.Clone(e.Body)
	writes, err := apply.Project(k.projection, e.Change)
	if !bytes.Equal(e.Body, k.events[i].Body) {
		return nil, errors.New("the projection changed the event's body")
	}
	if stack := apply.Stack(err); stack != "" {
		return nil, fmt.Errorf("%w\n%s", err, stack)
	}
	return writes, err
}

// mistake is what is wrong with one event. Many events may share one.
type mistake struct {
	event int
	same  string // equal in those that share it
	err   error
}

// once reports each mistake once, with its first event and the number of others that share it.
func (k *kit) once(mistakes []mistake) (problems []error) {
	more := make(map[string]int)
	for _, m := range mistakes {
		more[m.same]++
	}
	for _, m := range mistakes {
		others := ""
		switch n := more[m.same] - 1; {
		case n < 0:
			continue // reported already
		case n > 0:
			others = fmt.Sprintf(", and %d more", n)
		}
		more[m.same] = 0
		problems = append(problems, fmt.Errorf("%s%s: %w", describe(k.events, m.event), others, m.err))
	}
	return problems
}

// project projects every event for the first time, and keeps the writes.
func (k *kit) project() error {
	var mistakes []mistake
	collections, _ := projection.Collections(k.projection)
	for i, e := range k.events {
		writes, err := k.one(i)
		switch {
		case err != nil:
			same, _, _ := strings.Cut(err.Error(), "\n") // a panic's stack differs
			mistakes = append(mistakes, mistake{i, same, err})
		case e.Operation == envelope.Insert:
			if err = build.Keyed(collections, e.Change, writes); err != nil {
				mistakes = append(mistakes, mistake{i, build.ErrKeyedBy.Error(), err})
			}
		}
		k.writes = append(k.writes, writes)
	}
	return errors.Join(k.once(mistakes)...)
}

// again projects every event again, backwards and from several goroutines at once, and compares the
// writes.
func (k *kit) again() []error {
	found := make([]error, len(k.events)) // one mistake an event is enough
	repeat := func(i int) error {
		writes, err := k.one(i)
		if err == nil && !memory.Same(k.writes[i], writes) {
			first, then := describeWrites(k.writes[i]), describeWrites(writes)
			if first == then { // a difference inside a document that its Extended JSON does not show
				first, then = fmt.Sprintf("%+v", k.writes[i]), fmt.Sprintf("%+v", writes)
			}
			err = fmt.Errorf("the same event gave other writes the second time: a projection may depend on nothing but the event, so on no "+
				"clock (e.Time is the event's), no counter and no order of a map\n  first: %s\n  then:  %s", first, then)
		}
		return err
	}
	for i := range slices.Backward(k.events) {
		found[i] = repeat(i)
	}
	var mu sync.Mutex // guards found
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for i := range k.events {
				if err := repeat(i); err != nil {
					mu.Lock()
					found[i] = err
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	var mistakes []mistake
	for i, err := range found {
		if err != nil {
			mistakes = append(mistakes, mistake{i, "other writes", err})
		}
	}
	return k.once(mistakes)
}

// straight returns the given order.
func (k *kit) straight() []int {
	order := make([]int, len(k.events))
	for i := range order {
		order[i] = i
	}
	return order
}

// inOrder returns the read model after the first writes of the events, applied in the given order.
func (k *kit) inOrder(order []int) (*memory.Store, error) {
	model := &memory.Store{}
	for _, i := range order {
		for _, w := range k.writes[i] {
			if err := model.Apply(w); err != nil {
				return nil, fmt.Errorf("%s: %w", describe(k.events, i), err)
			}
		}
	}
	return model, nil
}

// redelivered does what happens after a crash, at every point: everything is delivered again, and
// the guard skips what it has seen.
func (k *kit) redelivered(want *memory.Store) []error {
	step := max(1, len(k.events)/prefixes)
	for crash := step; crash <= len(k.events); crash += step {
		model, guard := &memory.Store{}, make(map[string]string)
		for _, i := range append(k.straight()[:crash], k.straight()...) {
			e := k.events[i]
			writes, err := k.one(i)
			if err != nil {
				return []error{fmt.Errorf("delivered again: %s: %w", describe(k.events, i), err)}
			}
			if e.Position <= guard[e.Aggregate] {
				continue
			}
			guard[e.Aggregate] = e.Position
			for _, w := range writes {
				if err := model.Apply(w); err != nil {
					return []error{fmt.Errorf("delivered again: %s: %w", describe(k.events, i), err)}
				}
			}
		}
		if differences := sameDocuments(want, model); len(differences) > 0 {
			return []error{fmt.Errorf("after %s everything was delivered again, and the documents came out differently:\n  %s",
				describe(k.events, crash-1), strings.Join(differences, "\n  "))}
		}
	}
	return nil
}

// interleaved mixes the aggregates in other ways.
func (k *kit) interleaved(want *memory.Store) []error {
	by := make(map[string][]int)
	var aggregates []string // by their first event
	for i, e := range k.events {
		if by[e.Aggregate] == nil {
			aggregates = append(aggregates, e.Aggregate)
		}
		by[e.Aggregate] = append(by[e.Aggregate], i)
	}
	if len(aggregates) < 2 {
		return nil
	}
	orders := make([][]int, 2) // the two extremes
	for _, a := range aggregates {
		orders[0] = append(orders[0], by[a]...)
	}
	for _, a := range slices.Backward(aggregates) {
		orders[1] = append(orders[1], by[a]...)
	}
	for seed := range uint64(shuffles) {
		orders = append(orders, shuffle(rand.New(rand.NewPCG(seed, uint64(len(k.events)))), aggregates, by))
	}
	for _, order := range orders {
		model, err := k.inOrder(order)
		if err == nil {
			differences := sameDocuments(want, model)
			if len(differences) == 0 {
				continue
			}
			err = errors.New(strings.Join(differences, "\n  "))
		}
		return []error{fmt.Errorf("the documents depend on the order of events of different aggregates, which is not guaranteed. "+
			"Inc, Min and Max give the same result in any order; Set does not, and AddToSet keeps its members in the order they came "+
			"(Set(\"tags.\"+EscapeKey(tag), true) makes a set without order). With the events in the order %s:\n  %w", numbers(order), err)}
	}
	return nil
}

// shuffle draws an interleaving.
func shuffle(r *rand.Rand, aggregates []string, by map[string][]int) (order []int) {
	left := maps.Clone(by)
	open := slices.Clone(aggregates)
	for len(open) > 0 {
		n := r.IntN(len(open))
		a := open[n]
		order = append(order, left[a][0])
		if left[a] = left[a][1:]; len(left[a]) == 0 {
			open = slices.Delete(open, n, n+1)
		}
	}
	return order
}

// numbers returns an order of events as text, counted from 1.
func numbers(order []int) string {
	const most = 30
	text := make([]string, 0, most)
	for n, i := range order {
		if n == most {
			text = append(text, "…")
			break
		}
		text = append(text, fmt.Sprint(i+1))
	}
	return strings.Join(text, " ")
}
