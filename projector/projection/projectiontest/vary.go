package projectiontest

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// variation makes more events of those that a test gives: the same again, for other documents.
type variation struct {
	n int
	// aggregates gives the events other aggregates; else they follow the given ones of the same aggregates.
	aggregates bool
	// identifiers gives every identifier in the documents another value, too: another customer of another order.
	identifiers bool
}

// events are the given ones, varied. They have no positions yet.
func (v variation) events(given []projection.Event) []projection.Event {
	last := make(map[string]int64)
	for _, e := range given {
		last[e.Aggregate] = max(last[e.Aggregate], e.Version)
	}
	varied := make([]projection.Event, len(given))
	for i, e := range given {
		d := dressing{variation: v, aggregate: e.Aggregate, version: int64(v.n) * last[e.Aggregate]}
		body := fields(e.Body)
		for j := range body {
			switch document, _ := body[j].Value.(bson.D); body[j].Key {
			case "documentKey", "fullDocument", "fullDocumentBeforeChange":
				if document != nil {
					body[j].Value = d.document(document, true)
				}
			case "updateDescription":
				for k := range document {
					if updated, ok := document[k].Value.(bson.D); ok && document[k].Key == "updatedFields" {
						document[k].Value = d.document(updated, true)
					}
				}
			}
		}
		e.Body, e.Position, e.MessageID = raw(body), "", ""
		if !e.Time.IsZero() {
			e.Time = e.Time.AddDate(0, 0, v.n)
		}
		if v.aggregates {
			e.Aggregate = d.text(e.Aggregate)
			e.Session = "" // one of its own
		} else if e.Version > 0 {
			e.Version += d.version
		}
		varied[i] = e
	}
	return varied
}

// dressing is what a variation does to the documents of one event.
type dressing struct {
	variation
	aggregate string
	version   int64 // is added, where the aggregate stays
}

func (d dressing) document(document bson.D, top bool) bson.D {
	varied := slices.Clone(document)
	for i, f := range varied {
		name := f.Key[strings.LastIndexByte(f.Key, '.')+1:]
		n, isNumber := number(f.Value)
		switch {
		case top && f.Key == "version" && isNumber && !d.aggregates:
			varied[i].Value = n + d.version
		case top && f.Key == "type":
		default:
			varied[i].Value = d.value(f.Value, (top && f.Key == "_id") || (d.identifiers && identifies(name)))
		}
	}
	return varied
}

// value varies a value that identifies something, that is the aggregate's name, or that holds some.
func (d dressing) value(value any, identifies bool) any {
	if d.aggregates && !identifies {
		if text, ok := envelope.Text(rawValue(value)); ok && text == d.aggregate {
			identifies = true
		}
	}
	switch v := value.(type) {
	case bson.D:
		return d.document(v, false)
	case bson.A:
		varied := make(bson.A, len(v))
		for i, element := range v {
			varied[i] = d.value(element, identifies)
		}
		return varied
	case bson.ObjectID:
		if identifies || d.identifiers {
			return bson.ObjectID(d.bytes(v[:]))
		}
	case bson.Binary:
		if (identifies || d.identifiers) && len(v.Data) >= 8 {
			return bson.Binary{Subtype: v.Subtype, Data: d.bytes(v.Data)}
		}
	}
	if !identifies {
		return value
	}
	if n, ok := number(value); ok {
		return n + int64(d.n)*1_000_003
	}
	if text, ok := value.(string); ok {
		return d.text(text)
	}
	return value
}

// bytes gives an identifier of the same length.
func (d dressing) bytes(id []byte) []byte {
	varied := slices.Clone(id)
	end := varied[len(varied)-4:]
	binary.BigEndian.PutUint32(end, binary.BigEndian.Uint32(end)^uint32(d.n))
	return varied
}

var hexadecimal = regexp.MustCompile(`^[0-9a-fA-F-]{24,36}$`)

// text gives an identifier of the same kind: a projection may read it as a number, an ObjectID or a UUID.
func (d dressing) text(id string) string {
	if n, err := strconv.ParseInt(id, 10, 64); err == nil {
		return strconv.FormatInt(n+int64(d.n)*1_000_003, 10)
	}
	if hexadecimal.MatchString(id) {
		if n, err := strconv.ParseUint(id[len(id)-8:], 16, 32); err == nil {
			return id[:len(id)-8] + fmt.Sprintf("%08x", uint32(n)^uint32(d.n))
		}
	}
	return fmt.Sprintf("%s~%d", id, d.n)
}

var identifying = regexp.MustCompile(`(^|_)(id|ids|uuid|guid|email)$|[a-z](Id|Ids|ID|IDs|UUID|Uuid|Guid|Email)$`)

// identifies says whether a field has as many values as there are things, by its name. Others may have few: a currency, a status.
func identifies(name string) bool { return identifying.MatchString(name) }

func number(value any) (int64, bool) {
	switch n := value.(type) {
	case int32:
		return int64(n), true
	case int64:
		return n, true
	}
	return 0, false
}

func rawValue(value any) bson.RawValue {
	if value == nil {
		return bson.RawValue{Type: bson.TypeNull}
	}
	kind, data, err := bson.MarshalValue(value)
	if err != nil {
		return bson.RawValue{}
	}
	return bson.RawValue{Type: kind, Value: data}
}
