package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Comparison is the result of comparing one read model with another.
type Comparison struct {
	Aggregates int   // expected
	Right      int   // expected and equal in every field
	Lost       int64 // events that are expected and missing
	Doubled    int64 // events too many
	// Mismatches counts the aggregates that differ in anything, including those that should not
	// exist.
	Mismatches int
	// Unexpected counts the aggregates that should not exist.
	Unexpected int
	// Differences describes each difference, in the order of the expected model, with unexpected
	// aggregates last.
	Differences []string
}

// OK reports whether the read model is exactly right.
func (c Comparison) OK() bool { return c.Mismatches == 0 }

// Compare compares actual with expected, aggregate by aggregate.
func Compare(expected, actual *Model) Comparison {
	c := Comparison{Aggregates: expected.Len()}
	for _, id := range expected.order {
		want := expected.by[id].Summary
		got, there := actual.Of(id)
		if !there {
			c.Lost += want.Events
			c.Mismatches++
			c.Differences = append(c.Differences, fmt.Sprintf("%s: missing, with all its %d events", id, want.Events))
			continue
		}
		differences, lost, doubled := compareOne(want, got)
		c.Lost += lost
		c.Doubled += doubled
		if len(differences) == 0 {
			c.Right++
			continue
		}
		c.Mismatches++
		c.Differences = append(c.Differences, id+": "+strings.Join(differences, "; "))
	}
	for _, id := range actual.order {
		if _, wanted := expected.by[id]; !wanted {
			n := actual.by[id].Events
			c.Doubled += n
			c.Mismatches++
			c.Unexpected++
			c.Differences = append(c.Differences, fmt.Sprintf("%s: should not be there, with %d events", id, n))
		}
	}
	return c
}

// compareOne counts lost and doubled events by type, since one lost and one doubled event leave the
// sum unchanged.
func compareOne(want, got Summary) (differences []string, lost, doubled int64) {
	if got.Events != want.Events {
		differences = append(differences, fmt.Sprintf("events is %d, expected %d", got.Events, want.Events))
	}
	types := maps.Clone(want.Types)
	if types == nil {
		types = map[string]int64{}
	}
	for kind := range got.Types {
		if _, wanted := types[kind]; !wanted {
			types[kind] = 0
		}
	}
	// A map has no order: sorted names make the text the same every time.
	for _, kind := range slices.Sorted(maps.Keys(types)) {
		w, g := types[kind], got.Types[kind]
		if w == g {
			continue
		}
		lost += max(0, w-g)
		doubled += max(0, g-w)
		differences = append(differences, fmt.Sprintf("types[%q] is %d, expected %d", kind, g, w))
	}
	// The sum may be wrong although the types are right: that is a loss or a repeat as well.
	lost = max(lost, want.Events-got.Events)
	doubled = max(doubled, got.Events-want.Events)
	for _, field := range []struct{ name, want, got string }{
		{"firstOccurredAt", want.FirstOccurredAt, got.FirstOccurredAt},
		{"lastOccurredAt", want.LastOccurredAt, got.LastOccurredAt},
		{"lastType", want.LastType, got.LastType},
	} {
		if field.want != field.got {
			differences = append(differences, fmt.Sprintf("%s is %q, expected %q", field.name, field.got, field.want))
		}
	}
	return differences, lost, doubled
}
