package remote

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// The parts of a change that a program gets as the event's data, under the names of a change
// stream.
var dataFields = []string{"documentKey", "fullDocument", "fullDocumentBeforeChange", "updateDescription"}

// errNotJSON is an event that can be sent as BSON only.
var errNotJSON = errors.New("JSON cannot carry a document of the event unchanged (text that is not UTF-8, or a field name like those of Extended JSON), " +
	"and the program does not declare takesBase64")

// appendEvent appends an event to a call, in the JSON format of CloudEvents; its id is the event's
// index in the call. Nothing is in it that differs between two deliveries, or that the source does
// not hold.
func appendEvent(dst []byte, index int, c *envelope.Change, takesBase64 bool) ([]byte, error) {
	e := encoder{dst: slices.Grow(dst, jsonSize(c))}
	e.comma(index)
	e.raw(`{"specversion":"1.0","id":"`, strconv.Itoa(index), `","source":"sluice","type":`)
	e.text(c.Type)
	e.raw(`,"subject":`)
	e.text(c.Aggregate)
	if !c.Time.IsZero() {
		e.raw(`,"time":"`)
		e.dst = c.Time.UTC().AppendFormat(e.dst, time.RFC3339Nano)
		e.raw(`"`)
	}
	e.raw(`,"operation":"`, string(c.Operation), `"`)
	if c.Version != 0 {
		e.raw(`,"version":"`, strconv.FormatInt(c.Version, 10), `"`)
	}
	if c.CorrelationID != "" {
		e.raw(`,"correlationid":`)
		e.text(c.CorrelationID)
	}
	if (projection.Event{Change: *c}).LookedUp() {
		e.raw(`,"lookedup":true`)
	}
	raw := programData(c.Body)
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

// jsonSize returns how many bytes an event is expected to have in a call.
func jsonSize(c *envelope.Change) int { return len(c.Body)*3/2 + 256 }

// programData returns the part of a change's body that a program gets.
func programData(body bson.Raw) bson.Raw {
	start, data := bsoncore.AppendDocumentStart(make([]byte, 0, len(body)))
	for _, name := range dataFields {
		if v := body.Lookup(name); v.Type == bson.TypeEmbeddedDocument || v.Type == bson.TypeNull {
			data = bsoncore.AppendValueElement(data, name, bsoncore.Value{Type: bsoncore.Type(v.Type), Data: v.Value})
		}
	}
	data, _ = bsoncore.AppendDocumentEnd(data, start) // it fails for a start of its own alone
	return data
}

// ReadEvents reads the body of a call, as a program does.
func ReadEvents(body []byte) ([]projection.Event, error) {
	p := parsers.Get().(*parser)
	defer p.free()
	p.twice = true
	all, err := p.parse(body)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read events: the call %w", err)
	case all.kind != '[':
		return nil, errors.New("read events: the call is not an array")
	}
	events := make([]projection.Event, len(all.items))
	for i, each := range all.items {
		if err := readEvent(&events[i].Change, i, each); err != nil {
			return nil, fmt.Errorf("read event %d: %w", i, err)
		}
	}
	return events, nil
}

// readEvent reads one event. Members that it does not know are of later versions.
func readEvent(c *envelope.Change, index int, n node) (err error) {
	o := n.object("it")
	if id := o.text("id"); o.err == nil && id != strconv.Itoa(index) {
		o.fail("has the id %q", shorten(id))
	}
	c.Type, c.Aggregate, c.Operation = o.text("type"), o.text("subject"), envelope.Operation(o.text("operation"))
	c.CorrelationID = o.optional("correlationid")
	c.PostImage = !o.flag("lookedup") && c.Operation == envelope.Update
	if at := o.optional("time"); at != "" {
		if c.Time, err = time.Parse(time.RFC3339, at); err != nil {
			return err
		}
	}
	if version := o.optional("version"); version != "" {
		if c.Version, err = strconv.ParseInt(version, 10, 64); err != nil {
			return err
		}
	}
	start, dst := bsoncore.AppendDocumentStart(make([]byte, 0, len(n.raw)))
	dst = bsoncore.AppendStringElement(dst, "operationType", string(c.Operation))
	if data, ok := o.take("data"); ok {
		dst, err = appendData(dst, data)
	} else {
		dst, err = appendBase64(dst, o.text("data_base64"))
	}
	if o.err != nil {
		return o.err
	}
	if err != nil {
		return fmt.Errorf("its data: %w", err)
	}
	c.Body, err = bsoncore.AppendDocumentEnd(dst, start)
	return err
}

// appendData appends the elements of an event's data. The driver reads what an answer may not have,
// such as a field that begins with a dollar.
func appendData(dst []byte, n node) ([]byte, error) {
	if n.kind == '{' {
		if all, err := appendFields(dst, n.items); err == nil {
			return all, nil
		}
	}
	const canonical = true
	var data bson.Raw
	if err := bson.UnmarshalExtJSON([]byte(n.raw), canonical, &data); err != nil {
		return nil, err
	}
	return appendElements(dst, data)
}

// appendBase64 appends the elements of data that came as BSON.
func appendBase64(dst []byte, text string) ([]byte, error) {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	return appendElements(dst, data)
}

func appendElements(dst []byte, document bson.Raw) ([]byte, error) {
	if err := document.Validate(); err != nil {
		return nil, err
	}
	return append(dst, document[4:len(document)-1]...), nil
}
