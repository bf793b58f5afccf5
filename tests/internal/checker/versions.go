package checker

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// ErrView breaks the promise of a switch: a read of a view shows one version of the read model, and
// no reader sees an aggregate go back.
var ErrView = errors.New("view of a read model went back")

// Versions is what was recorded of a second version of the projection.
type Versions struct {
	// Expected is the fold of all committed events, Actual the final content of the second version.
	Expected, Actual             *history.Model
	ExpectedTotals, ActualTotals *history.Model
	// Reads are what a reader of the view saw, and Attempts how many reads had ended when each
	// attempt to switch to the second version began.
	Reads    []Read
	Attempts []int
}

// Read is one read of the whole view.
type Read struct {
	// Versions are the versions whose documents it contains, by their first document.
	Versions []int
	// Events is how many events each aggregate has.
	Events map[string]int64
}

// judgeVersions compares the second version in the end, and each read of the view with the one
// before. The first read of the second version is compared with the last read before the switch
// began: the command waits until the version has what the source has by then.
func judgeVersions(v *Versions) (found []error) {
	if v == nil {
		return nil
	}
	found = append(found, judgeModel("second version", v.Expected, v.Actual)...)
	found = append(found, judgeModel("totals of the second version", v.ExpectedTotals, v.ActualTotals)...)
	before, shown := -1, 1 // the read to compare with, and the version that the view shows
	for n, read := range v.Reads {
		if len(read.Versions) > 1 {
			found = append(found, fmt.Errorf("%w: read %d contains documents of versions %v", ErrView, n, read.Versions))
			continue
		}
		if len(read.Versions) == 1 && read.Versions[0] != shown {
			if read.Versions[0] < shown {
				found = append(found, fmt.Errorf("%w: read %d is of version %d, behind one of version %d", ErrView, n, read.Versions[0], shown))
			}
			shown = read.Versions[0]
			before = -1
			for _, reads := range v.Attempts {
				if reads <= n {
					before = reads - 1
				}
			}
		}
		if before >= 0 {
			found = append(found, wentBack(n, v.Reads[before], read)...)
		}
		before = n
	}
	return found
}

func wentBack(n int, before, now Read) (found []error) {
	var names []string
	for aggregate, events := range before.Events {
		if now.Events[aggregate] < events {
			names = append(names, fmt.Sprintf("%s has %d events after %d", aggregate, now.Events[aggregate], events))
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		found = append(found, fmt.Errorf("%w: in read %d %s (%d aggregates)", ErrView, n, names[0], len(names)))
	}
	return found
}
