package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Summary is the content of the timeline read model for one aggregate.
type Summary struct {
	Events int64 `json:"events"`
	// Types counts the events by type, under the type's own name.
	Types           map[string]int64 `json:"types"`
	FirstOccurredAt string           `json:"firstOccurredAt"`
	LastOccurredAt  string           `json:"lastOccurredAt"`
	LastType        string           `json:"lastType"`
}

// Model is a whole timeline read model, expected or actual. The zero value is empty and ready to
// use.
type Model struct {
	order []string
	by    map[string]*modelEntry
}

type modelEntry struct {
	Summary
	first, last int64 // the versions of First and Last; set by Fold only
}

// Len returns the number of aggregates.
func (m *Model) Len() int { return len(m.order) }

// Events returns the number of events of all aggregates.
func (m *Model) Events() int64 {
	var n int64
	for _, e := range m.by {
		n += e.Events
	}
	return n
}

// Of returns the summary of an aggregate.
func (m *Model) Of(aggregate string) (Summary, bool) {
	e, ok := m.by[aggregate]
	if !ok {
		return Summary{}, false
	}
	return e.Summary, true
}

// Put adds a whole aggregate. It returns false, and changes nothing, if the model already has it.
func (m *Model) Put(aggregate string, s Summary) bool {
	if _, has := m.by[aggregate]; has {
		return false
	}
	m.add(aggregate, &modelEntry{Summary: s})
	return true
}

// Fold adds one event. Events may be added in any order: an aggregate's first and last event are
// those with the lowest and the highest version, not those that were added first and last, and not
// those with the earliest and the latest time (times repeat).
func (m *Model) Fold(aggregate string, version int64, kind, occurredAt string) {
	e, has := m.by[aggregate]
	if !has {
		e = &modelEntry{Summary: Summary{Types: map[string]int64{}}}
		m.add(aggregate, e)
	}
	e.Events++
	e.Types[kind]++
	if e.Events == 1 || version < e.first {
		e.first, e.FirstOccurredAt = version, occurredAt
	}
	if e.Events == 1 || version > e.last {
		e.last, e.LastOccurredAt, e.LastType = version, occurredAt, kind
	}
}

func (m *Model) add(aggregate string, e *modelEntry) {
	if m.by == nil {
		m.by = map[string]*modelEntry{}
	}
	m.order = append(m.order, aggregate)
	m.by[aggregate] = e
}

// ReadModel reads the form of `--expect`: one JSON object, from aggregate id to [Summary]. Unknown
// fields, an aggregate that occurs twice and anything behind the object are errors.
func ReadModel(r io.Reader) (*Model, error) {
	decoder := json.NewDecoder(r)
	decoder.DisallowUnknownFields()
	if token, err := decoder.Token(); err != nil {
		return nil, fmt.Errorf("read expectation: %w", readable(err))
	} else if token != json.Delim('{') {
		return nil, fmt.Errorf("read expectation: it begins with %v: it must be one JSON object from aggregate id to {events, types, "+
			"firstOccurredAt, lastOccurredAt, lastType}", token)
	}
	m := &Model{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, fmt.Errorf("read expectation after %d aggregates: %w", m.Len(), readable(err))
		}
		id, _ := token.(string)
		var s Summary
		if err := decoder.Decode(&s); err != nil {
			return nil, fmt.Errorf("read expectation of aggregate %q: %w", id, readable(err))
		}
		if !m.Put(id, s) {
			return nil, fmt.Errorf("read expectation: aggregate %q is there twice", id)
		}
	}
	if _, err := decoder.Token(); err != nil {
		return nil, fmt.Errorf("read expectation after %d aggregates: %w", m.Len(), readable(err))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("read expectation: something follows the object")
	}
	return m, nil
}

func readable(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
