package apply

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

func TestWhatTheGuardShowsOfARow(t *testing.T) {
	increments := []projection.Write{projection.Update("c", "a", projection.Inc("n", 1))}
	replaces := []projection.Write{projection.Replace("c", "a", nil)}
	guarded := func(version int64) Guard {
		return Guard{Position: "82", Version: version}
	}
	parked := Guard{Parked: &Record{}}
	for name, test := range map[string]struct {
		row            envelope.Row
		version        int64
		ignoreVersions bool
		writes         []projection.Write
		guard          Guard
		repeats        bool // it is a duplicate
		unclear        bool // it parks the aggregate
	}{
		"an event is compared by its position":           {"", 3, false, increments, guarded(5), false, false},
		"a version that was reached":                     {envelope.RowRepeat, 3, false, increments, guarded(3), true, false},
		"the same in a new stream":                       {envelope.RowInitial, 3, false, increments, guarded(3), true, false},
		"the next version":                               {envelope.RowRepeat, 4, false, increments, guarded(3), false, false},
		"a new aggregate":                                {envelope.RowRepeat, 4, false, increments, Guard{}, false, false},
		"no version, of a new aggregate":                 {envelope.RowRepeat, 0, false, increments, Guard{}, false, false},
		"no version, parked before anything was applied": {envelope.RowRepeat, 0, false, increments, parked, false, false},
		"a version, parked before anything was applied":  {envelope.RowRepeat, 4, false, increments, parked, false, false},
		"no version":                                     {envelope.RowRepeat, 0, false, increments, guarded(3), false, true},
		"no version, in a new stream":                    {envelope.RowInitial, 0, false, increments, guarded(3), false, false},
		"no version, of a whole document":                {envelope.RowRepeat, 0, false, replaces, guarded(3), false, false},
		"versions that do not count":                     {envelope.RowRepeat, 4, true, increments, guarded(3), false, true},
		"a version behind events that had none":          {envelope.RowRepeat, 4, false, increments, guarded(0), false, true},
		"a version behind events that had none, at once": {envelope.RowInitial, 4, false, increments, guarded(0), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := envelope.Change{Aggregate: "a", Position: "83", Operation: envelope.Insert, Version: test.version, Row: test.row}
			g := &group{aggregate: "a", ignoreVersions: test.ignoreVersions, events: []planned{{change: &c, writes: test.writes}}}
			require.Equal(t, test.repeats, g.repeats(test.guard))
			require.Equal(t, test.unclear, g.unclear(test.guard))
		})
	}
}

func TestWhatIsPlannedBesideARow(t *testing.T) {
	change := func(row envelope.Row, version int64) *envelope.Change {
		return &envelope.Change{Operation: envelope.Insert, Version: version, Row: row}
	}
	event := func(version int64) *envelope.Change { return change("", version) }
	for name, test := range map[string]struct {
		first, second *envelope.Change
		takes         bool
	}{
		"events":                               {event(1), event(2), true},
		"rows in their order":                  {change(envelope.RowRepeat, 1), change(envelope.RowInitial, 2), true},
		"an event behind a row":                {change(envelope.RowRepeat, 1), event(2), true},
		"a row that repeats a row":             {change(envelope.RowRepeat, 2), change(envelope.RowRepeat, 2), false},
		"a row behind an event":                {event(1), change(envelope.RowRepeat, 2), false},
		"a row without a version":              {event(1), change(envelope.RowRepeat, 0), false},
		"an event behind one":                  {change(envelope.RowRepeat, 0), event(1), false},
		"rows without versions, at once":       {change(envelope.RowInitial, 0), change(envelope.RowInitial, 0), true},
		"a row without a version behind a row": {change(envelope.RowRepeat, 1), change(envelope.RowRepeat, 0), false},
	} {
		t.Run(name, func(t *testing.T) {
			g := &group{events: []planned{{change: test.first}}}
			require.Equal(t, test.takes, g.takes(test.second, false))
		})
	}
}
