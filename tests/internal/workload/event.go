package workload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// Event is one event of an aggregate, in the form of an input line.
type Event struct {
	AggregateID string          `json:"aggregateId"`
	Version     int64           `json:"version"` // 1, 2, 3, … within the aggregate
	Type        string          `json:"type"`
	OccurredAt  string          `json:"occurredAt"` // RFC 3339; kept as it was written
	Data        json.RawMessage `json:"data,omitempty"`
}

// Document returns the event as it is stored, under a new ObjectID. Fields keep their order and
// texts their form.
func (e Event) Document() (bson.D, error) {
	d := bson.D{
		{Key: "_id", Value: bson.NewObjectID()},
		{Key: "aggregateId", Value: e.AggregateID},
		{Key: "version", Value: e.Version},
		{Key: "type", Value: e.Type},
		{Key: "occurredAt", Value: e.OccurredAt},
	}
	if len(e.Data) == 0 {
		return d, nil
	}
	data, err := fromJSON(e.Data)
	if err != nil {
		return nil, fmt.Errorf("convert data of event %d of %s: %w", e.Version, e.AggregateID, err)
	}
	return append(d, bson.E{Key: "data", Value: data}), nil
}

// Commits returns the records of events that are inserted.
func Commits(batch []Event, at time.Time) []history.Commit {
	commits := make([]history.Commit, len(batch))
	for i, e := range batch {
		commits[i] = history.Commit{Aggregate: e.AggregateID, Version: e.Version, At: at}
	}
	return commits
}

// fromJSON converts plain JSON, and not Extended JSON: a field that happens to be called $date is
// not converted.
func fromJSON(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := value(d)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the value")
	}
	return v, nil
}

func value(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Number:
		if n, err := t.Int64(); err == nil {
			return n, nil
		}
		return t.Float64()
	case json.Delim:
		if t == '[' {
			return array(d)
		}
		return object(d)
	default:
		return t, nil // a string, a bool, or nil
	}
}

func array(d *json.Decoder) (bson.A, error) {
	values := bson.A{}
	for d.More() {
		v, err := value(d)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	_, err := d.Token() // the closing bracket
	return values, err
}

func object(d *json.Decoder) (bson.D, error) {
	fields := bson.D{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		v, err := value(d)
		if err != nil {
			return nil, err
		}
		name, _ := key.(string) // an object's key is always a string
		fields = append(fields, bson.E{Key: name, Value: v})
	}
	_, err := d.Token() // the closing brace
	return fields, err
}
