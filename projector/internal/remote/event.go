package remote

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// The parts of a change that a program gets as the event's data, under the names of a change
// stream.
var dataFields = []string{"documentKey", "fullDocument", "fullDocumentBeforeChange", "updateDescription"}

// errNotJSON is an event that can be sent as BSON only.
var errNotJSON = errors.New("JSON cannot carry a document of the event unchanged (text that is not UTF-8, or a field name like those of Extended JSON), " +
	"and the program does not declare takesBase64")

// appendEvent appends an event in the JSON format of CloudEvents; its id is the event's index in
// the call. Nothing is in it that differs between two deliveries, or that the source does not hold.
func appendEvent(dst []byte, index int, c *envelope.Change, takesBase64 bool) ([]byte, error) {
	e := encoder{dst: dst}
	e.raw(`{"specversion":"1.0","id":"` + strconv.Itoa(index) + `","source":"sluice","type":`)
	e.text(c.Type)
	e.raw(`,"subject":`)
	e.text(c.Aggregate)
	if !c.Time.IsZero() {
		e.raw(`,"time":"` + c.Time.UTC().Format(time.RFC3339Nano) + `"`)
	}
	e.raw(`,"operation":"` + string(c.Operation) + `"`)
	if c.Version != 0 {
		e.raw(`,"version":"` + strconv.FormatInt(c.Version, 10) + `"`)
	}
	if c.CorrelationID != "" {
		e.raw(`,"correlationid":`)
		e.text(c.CorrelationID)
	}
	if (projection.Event{Change: *c}).LookedUp() {
		e.raw(`,"lookedup":true`)
	}
	data := make(bson.D, 0, len(dataFields))
	for _, name := range dataFields {
		if value := c.Body.Lookup(name); value.Type == bson.TypeEmbeddedDocument || value.Type == bson.TypeNull {
			data = append(data, bson.E{Key: name, Value: value})
		}
	}
	raw, err := bson.Marshal(data)
	if err != nil {
		return dst, err
	}
	before := len(e.dst)
	e.raw(`,"datacontenttype":"application/json","data":`)
	var ok bool
	if e.dst, ok = envelope.AppendJSON(e.dst, raw); !ok {
		if !takesBase64 {
			return dst, projection.Permanent(errNotJSON)
		}
		e.dst = e.dst[:before]
		e.raw(`,"datacontenttype":"application/bson","data_base64":"`)
		e.dst = base64.StdEncoding.AppendEncode(e.dst, raw)
		e.raw(`"`)
	}
	e.raw(`}`)
	return e.dst, e.err
}

// ReadEvents reads the body of a call, as a program does.
func ReadEvents(body []byte) ([]projection.Event, error) {
	var all []struct {
		ID, Type, Subject, Operation, Version, CorrelationID string
		Time                                                 time.Time
		LookedUp                                             bool
		Data                                                 json.RawMessage
		Base64                                               []byte `json:"data_base64"`
	}
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	events := make([]projection.Event, len(all))
	for i, e := range all {
		if e.ID != strconv.Itoa(i) {
			return nil, fmt.Errorf("read events: event %d has the id %q", i, e.ID)
		}
		data := bson.Raw(e.Base64)
		if e.Data != nil {
			var err error
			if data, err = readData(e.Data); err != nil {
				return nil, fmt.Errorf("read the data of event %d: %w", i, err)
			}
		}
		elements, err := data.Elements()
		if err != nil {
			return nil, fmt.Errorf("read the data of event %d: %w", i, err)
		}
		body := bson.D{{Key: "operationType", Value: e.Operation}}
		for _, element := range elements {
			body = append(body, bson.E{Key: element.Key(), Value: element.Value()})
		}
		raw, err := bson.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("read the data of event %d: %w", i, err)
		}
		c := envelope.Change{
			Aggregate: e.Subject, Type: e.Type, Operation: envelope.Operation(e.Operation), Time: e.Time, CorrelationID: e.CorrelationID, Body: raw,
			PostImage: !e.LookedUp && e.Operation == string(envelope.Update),
		}
		if e.Version != "" {
			if c.Version, err = strconv.ParseInt(e.Version, 10, 64); err != nil {
				return nil, fmt.Errorf("read the version of event %d: %w", i, err)
			}
		}
		events[i] = projection.Event{Change: c}
	}
	return events, nil
}

// readData reads an event's data. The driver reads what an answer may not have, such as a field
// that begins with a dollar.
func readData(text []byte) (data bson.Raw, err error) {
	if n, err := parse(text); err == nil {
		if data, err = readRaw(n); err == nil {
			return data, nil
		}
	}
	const canonical = true
	err = bson.UnmarshalExtJSON(text, canonical, &data)
	return data, err
}
