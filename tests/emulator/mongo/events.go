package mongo

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/engine"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/keystring"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// covers reports whether an entry is an event of this stream.
func (s *stream) covers(x *engine.Entry) bool {
	if x.View && (!s.expanded || s.scope.Coll != "") {
		return false
	}
	switch x.Kind {
	case engine.Noop:
		return false
	case engine.Create, engine.CreateIndexes, engine.DropIndexes, engine.Modify:
		if !s.expanded {
			return false
		}
	case engine.DropDatabase:
		return s.scope.Coll == "" && (s.scope.DB == "" || s.scope.DB == x.NS.DB)
	default:
	}
	switch {
	case s.scope.Coll != "":
		return x.NS == s.scope || (x.Kind == engine.Rename && x.To == s.scope)
	case s.scope.DB != "":
		return x.NS.DB == s.scope.DB
	default:
		return x.NS.DB != "admin" && x.NS.DB != "local" && x.NS.DB != "config"
	}
}

// invalidates reports whether the stream ends after this event.
func (s *stream) invalidates(x *engine.Entry) bool {
	switch x.Kind {
	case engine.Drop, engine.Rename:
		return s.scope.Coll != ""
	case engine.DropDatabase:
		return s.scope.Coll == "" && s.scope.DB == x.NS.DB
	default:
		return false
	}
}

// mark returns the token of a moment, before any event of that moment.
func (s *stream) mark(at bson.Timestamp) keystring.Token {
	t := keystring.HighWaterMark(at)
	t.Version = s.version
	return t
}

// tokenFor identifies an entry's event.
func (s *stream) tokenFor(x *engine.Entry) keystring.Token {
	t := keystring.Token{Version: s.version, Time: x.At, TxnOp: x.TxnOp, UUID: x.UUID, Operation: x.Kind.String(), KeyField: "documentKey"}
	switch {
	case x.ID.Type != 0:
		v, _, _ := value.DecodeValue(x.ID.Type, x.ID.Value)
		t.Key = append(slices.Clip(x.ShardKey), bson.E{Key: "_id", Value: v})
	case x.Description != nil:
		t.KeyField, t.Key = "operationDescription", x.Description
	}
	return t
}

// event builds the change event of an entry and passes it through the pipeline.
func (s *stream) event(x *engine.Entry, t keystring.Token) (bson.Raw, bool, error) {
	tok := s.tokenOf(t)
	b := append(s.scratch[:0], 0, 0, 0, 0)
	b = value.AppendElement(b, "_id", tok)
	b = value.AppendElement(b, "operationType", x.Kind.String())
	b = value.AppendElement(b, "clusterTime", x.At)
	if s.expanded && x.UUID != nil {
		b = value.AppendElement(b, "collectionUUID", bson.Binary{Subtype: 4, Data: x.UUID})
	}
	if !s.before6 {
		b = value.AppendElement(b, "wallTime", x.Wall)
	}
	b, err := s.fullDocument(b, x)
	if err != nil {
		return nil, false, s.wanted(x, err)
	}
	ns := bson.D{{Key: "db", Value: x.NS.DB}}
	if x.NS.Coll != "" {
		ns = append(ns, bson.E{Key: "coll", Value: x.NS.Coll})
	}
	b = value.AppendElement(b, "ns", ns)
	if x.Kind == engine.Rename {
		b = value.AppendElement(b, "to", bson.D{{Key: "db", Value: x.To.DB}, {Key: "coll", Value: x.To.Coll}})
	}
	if x.ID.Type != 0 {
		b = value.AppendElement(b, "documentKey", documentKey(x))
	}
	if s.expanded && x.Description != nil {
		b = value.AppendElement(b, "operationDescription", x.Description)
	}
	if x.Kind == engine.Update {
		b = value.AppendElement(b, "updateDescription", s.describe(x))
	}
	if b, err = s.preImage(b, x); err != nil {
		return nil, false, s.wanted(x, err)
	}
	if x.LSID != nil {
		b = value.AppendElement(b, "lsid", x.LSID)
		b = value.AppendElement(b, "txnNumber", x.TxnNumber)
	}
	b = append(b, 0)
	b[0], b[1], b[2], b[3] = byte(len(b)), byte(len(b)>>8), byte(len(b)>>16), byte(len(b)>>24)
	s.scratch = b
	return s.pass(bytes.Clone(b), t)
}

// wanted ignores a missing image if the user's $match does not select the event anyway: a server
// applies the filters that need no image before it reads one.
func (s *stream) wanted(x *engine.Entry, missing error) error {
	if s.early == nil {
		return missing
	}
	d := bson.D{{Key: "operationType", Value: x.Kind.String()}, {Key: "clusterTime", Value: x.At}, {Key: "ns", Value: bson.D{{Key: "db", Value: x.NS.DB}, {Key: "coll", Value: x.NS.Coll}}}}
	if x.ID.Type != 0 {
		id, _, err := value.DecodeValue(x.ID.Type, x.ID.Value)
		if err != nil {
			return err
		}
		d = append(d, bson.E{Key: "documentKey", Value: append(slices.Clip(x.ShardKey), bson.E{Key: "_id", Value: id})})
	}
	if x.Kind == engine.Update {
		d = append(d, bson.E{Key: "updateDescription", Value: s.describe(x)})
	}
	ok, err := s.early.Match(d)
	if err != nil || !ok {
		return err
	}
	return missing
}

// early returns the conditions of the leading $match stages on an event's fields other than its
// images; nil: none.
func early(stages bson.A, env *query.Env) (*query.Matcher, error) {
	var all bson.A
	for _, item := range stages {
		stage, _ := item.(bson.D)
		if len(stage) != 1 || stage[0].Key != "$match" {
			break
		}
		filter, _ := stage[0].Value.(bson.D)
		plain := slices.DeleteFunc(slices.Clone(filter), func(e bson.E) bool {
			return strings.HasPrefix(e.Key, "fullDocument") || (strings.HasPrefix(e.Key, "$") && strings.Contains(fmt.Sprint(e.Value), "fullDocument"))
		})
		if len(plain) > 0 {
			all = append(all, plain)
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	return query.Compile(bson.D{{Key: "$and", Value: all}}, env)
}

func (s *stream) describe(x *engine.Entry) bson.D {
	removed, truncated := x.Change.Removed, x.Change.Truncated
	if removed == nil {
		removed = []string{}
	}
	if truncated == nil {
		truncated = bson.A{}
	}
	updated := x.Change.Updated
	if updated == nil {
		updated = bson.D{}
	}
	out := bson.D{{Key: "updatedFields", Value: updated}, {Key: "removedFields", Value: removed}}
	if !s.before5 {
		out = append(out, bson.E{Key: "truncatedArrays", Value: truncated})
	}
	if s.expanded {
		out = append(out, bson.E{Key: "disambiguatedPaths", Value: disambiguate(x.Full, updated, removed)})
	}
	return out
}

// disambiguate spells out the paths in which a number names a field, not an element.
func disambiguate(full bson.Raw, updated bson.D, removed []string) bson.D {
	out := bson.D{}
	doc, err := value.Decode(full)
	if err != nil {
		return out
	}
	for _, e := range updated {
		removed = append(slices.Clip(removed), e.Key)
	}
	for _, path := range removed {
		var at any = doc
		parts, ambiguous := bson.A{}, false
		for _, p := range value.Split(path) {
			i, isNumber := value.Index(p)
			switch t := at.(type) {
			case bson.A:
				parts = append(parts, int32(i))
				at = nil
				if i < len(t) {
					at = t[i]
				}
				continue
			case bson.D:
				at, _ = value.Get(t, p)
			}
			ambiguous = ambiguous || isNumber
			parts = append(parts, p)
		}
		if ambiguous {
			out = append(out, bson.E{Key: path, Value: parts})
		}
	}
	return out
}

func (s *stream) fullDocument(b []byte, x *engine.Entry) ([]byte, error) {
	switch x.Kind {
	case engine.Insert, engine.Replace:
		return value.AppendElement(b, "fullDocument", x.Full), nil
	case engine.Update:
	default:
		return b, nil
	}
	switch s.full {
	case "updateLookup":
		id, _, _ := value.DecodeValue(x.ID.Type, x.ID.Value)
		uuid := x.UUID
		if s.byName {
			uuid = nil
		}
		now := s.eng.Current(x.NS, uuid, id)
		if now == nil {
			return value.AppendElement(b, "fullDocument", nil), nil
		}
		return value.AppendElement(b, "fullDocument", now), nil
	case "whenAvailable", "required":
		if s.eng.KeepsImages(x) {
			return value.AppendElement(b, "fullDocument", x.Full), nil
		}
		if s.full == "required" {
			return nil, mongoerr.New(mongoerr.NoMatchingDocument, "Change stream was configured to require a post-image for all update events, but the post-image was not found for event: {operationType: \"update\"}")
		}
		return value.AppendElement(b, "fullDocument", nil), nil
	}
	return b, nil
}

func (s *stream) preImage(b []byte, x *engine.Entry) ([]byte, error) {
	switch x.Kind {
	case engine.Update, engine.Replace, engine.Delete:
	default:
		return b, nil
	}
	switch {
	case s.before == "off":
		return b, nil
	case x.Pre != nil && s.eng.KeepsImages(x):
		return value.AppendElement(b, "fullDocumentBeforeChange", x.Pre), nil
	case s.before == "required":
		return nil, mongoerr.New(mongoerr.NoMatchingDocument, "Change stream was configured to require a pre-image for all update, delete and replace events, but the pre-image was not found for event: {operationType: \"%s\"}", x.Kind)
	}
	return value.AppendElement(b, "fullDocumentBeforeChange", nil), nil
}

func (s *stream) invalidateEvent(x *engine.Entry, t keystring.Token) bson.Raw {
	d := bson.D{{Key: "_id", Value: s.tokenOf(t)}, {Key: "operationType", Value: "invalidate"}, {Key: "clusterTime", Value: x.At}}
	if !s.before6 {
		d = append(d, bson.E{Key: "wallTime", Value: x.Wall})
	}
	return value.Encode(d)
}

// pass sends an event through the user's stages. One that was cut is nil, and in s.fragments.
func (s *stream) pass(raw bson.Raw, t keystring.Token) (bson.Raw, bool, error) {
	if s.opaque {
		var err error
		if raw, err = poor(raw); err != nil {
			return nil, false, err
		}
	}
	if len(s.stages) > 0 {
		d, err := value.Decode(raw)
		if err != nil {
			return nil, false, err
		}
		id := d[0].Value
		for _, stage := range s.stages {
			var keep bool
			if d, keep, err = stage.Each(d); !keep || err != nil {
				return nil, false, err
			}
		}
		if now, ok := value.Get(d, "_id"); !ok || !value.Equal(now, id) {
			return nil, false, mongoerr.New(mongoerr.ChangeStreamFatalError, "Encountered an event whose _id field, which contains the resume token, was modified by the pipeline. Modifying the _id field of an event makes it impossible to resume the stream from that point. Only transformations that retain the unmodified _id field are allowed.")
		}
		raw = value.Encode(d)
	}
	raw, err := s.sized(raw, t)
	return raw, err == nil, err
}
