package projectiontest

import (
	"regexp"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// variation makes more events of those that a test gives: the same again, for other documents.
type variation struct {
	n int
	// aggregates gives the events other aggregates; else they follow the given ones of the same
	// aggregates.
	aggregates bool
	// field is the path of a field that gets a new value for each of its values; empty: none.
	field string
	// identifiers gives every field that identifies something, by its name or its type, another
	// value, too: another customer of another order.
	identifiers bool
	// few are the paths of fields that have few values, which therefore stay.
	few map[string]bool
}

// events returns the given events, varied. They have no positions yet.
func (v variation) events(given []projection.Event) []projection.Event {
	last := make(map[string]int64)
	for _, e := range given {
		last[e.Aggregate] = max(last[e.Aggregate], e.Version)
	}
	varied := make([]projection.Event, len(given))
	for i, e := range given {
		d := dressing{variation: v, aggregate: e.Aggregate, version: int64(v.n) * last[e.Aggregate]}
		body := fields(e.Body)
		for _, document := range documentsOf(body) {
			d.document(document, "")
		}
		e.Body, e.Position, e.MessageID = raw(body), "", ""
		if !e.Time.IsZero() {
			e.Time = e.Time.AddDate(0, 0, v.n)
		}
		if v.aggregates {
			e.Aggregate = otherText(e.Aggregate, v.n)
			e.Session = "" // one of its own
		} else if e.Version > 0 {
			e.Version += d.version
		}
		varied[i] = e
	}
	return varied
}

// documentsOf returns the documents in an event's body that hold fields of the source's document.
// What is written to their elements is written to the body.
func documentsOf(body bson.D) (all []bson.D) {
	for _, part := range body {
		document, _ := part.Value.(bson.D)
		switch part.Key {
		case "documentKey", "fullDocument", "fullDocumentBeforeChange":
			all = append(all, document)
		case "updateDescription":
			for _, e := range document {
				if updated, ok := e.Value.(bson.D); ok && e.Key == "updatedFields" {
					all = append(all, updated)
				}
			}
		}
	}
	return all
}

// dressing is what a variation does to the documents of one event.
type dressing struct {
	variation
	aggregate string
	version   int64 // is added, if the aggregate stays
}

// document varies the fields of a document in place; path leads to it, and is empty for a whole
// one.
func (d dressing) document(document bson.D, path string) {
	for i, f := range document {
		at := below(path, f.Key)
		n, isNumber := number(f.Value)
		switch {
		case at == versionField && isNumber && !d.aggregates:
			document[i].Value = n + d.version
		case at == typeField:
		default:
			document[i].Value = d.value(f.Value, at)
		}
	}
}

// value varies the value at a path, if it is to vary or is the aggregate's name.
func (d dressing) value(value any, path string) any {
	switch v := value.(type) {
	case bson.D:
		d.document(v, path)
		return v
	case bson.A:
		for i := range v {
			v[i] = d.value(v[i], path)
		}
		return v
	}
	if d.varies(value, path) {
		return other(value, d.n)
	}
	return value
}

func (d dressing) varies(value any, path string) bool {
	switch {
	case path == "_id": // each event of an event store is a document of its own
		return true
	case d.aggregates && names(value, d.aggregate):
		return true
	case d.few[path]:
		return false
	case d.field != "" && path == d.field:
		return true
	}
	return d.identifiers && identifies(value, path)
}

// The fields of a document that are known to be neither an identifier nor a value: they follow the
// event.
const (
	versionField = "version"
	typeField    = "type"
)

// below returns the path of a field of a document. The elements of an array have the path of the
// array.
func below(path, field string) string {
	steps := strings.Split(field, ".") // updatedFields holds paths
	if path != "" {
		steps = append([]string{path}, steps...)
	}
	return strings.Join(slices.DeleteFunc(steps, func(s string) bool { return strings.Trim(s, "0123456789") == "" }), ".")
}

// names reports whether a value is an aggregate's name.
func names(v any, aggregate string) bool {
	text, ok := envelope.Text(value(v))
	return ok && text == aggregate
}

var identifying = regexp.MustCompile(`(^|_)(id|ids|uuid|guid|email)$|[a-z](Id|Ids|ID|IDs|UUID|Uuid|Guid|Email)$`)

// identifies reports whether a field has as many values as there are things, by its type or by its
// name.
func identifies(value any, path string) bool {
	switch value.(type) {
	case bson.ObjectID, bson.Binary:
		return true
	}
	return identifying.MatchString(path[strings.LastIndexByte(path, '.')+1:])
}

// variable returns the paths of the fields whose values can be varied one by one: numbers, texts,
// times and identifiers, but for those that are the aggregate's name or the event's type under
// another name, which vary with these, and those with few values.
func variable(events []projection.Event, few map[string]bool) []string {
	own := make(map[string]bool) // by path: has a value of its own
	for _, e := range events {
		var look func(value any, path string)
		look = func(value any, path string) {
			switch v := value.(type) {
			case bson.D:
				for _, f := range v {
					look(f.Value, below(path, f.Key))
				}
			case bson.A:
				for _, element := range v {
					look(element, path)
				}
			default:
				own[path] = own[path] || (canVary(v) && !names(v, e.Aggregate) && v != any(e.Type))
			}
		}
		for _, document := range documentsOf(fields(e.Body)) {
			look(document, "")
		}
	}
	var paths []string
	for path, has := range own {
		if has && !few[path] && !slices.Contains([]string{"", "_id", versionField, typeField}, path) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}
