package mongo

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/engine"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// oplogNS is where a replica set member keeps its oplog: a capped collection that
// can be read and not written.
var oplogNS = engine.NS{DB: "local", Coll: "oplog.rs"}

// replsetNS is where a member keeps the configuration of its set.
var replsetNS = engine.NS{DB: "local", Coll: "system.replset"}

// oplogFields are the fields of an entry that this server returns. It keeps what an operation
// changed (o and o2) in another form: a command that needs these fields is refused, because an
// entry without them would be wrong.
var oplogFields = []string{"ts", "t", "v", "op", "ns", "ui", "wall"}

// findOplog runs find on the oplog, in its own order or against it ($natural).
func (r *request) findOplog(filter bson.D, limit int64) ([]bson.Raw, error) {
	backwards := false
	if sort, ok := r.get("sort").(bson.D); ok && len(sort) > 0 {
		direction, isInt := value.AsInt(sort[0].Value)
		if len(sort) != 1 || sort[0].Key != "$natural" || !isInt || (direction != 1 && direction != -1) {
			return nil, mongoerr.Unsupported("a sort of local.oplog.rs other than $natural")
		}
		backwards = direction < 0
	}
	fields, err := r.doc("projection")
	if err != nil {
		return nil, err
	}
	named := false
	for _, e := range fields {
		known := slices.Contains(oplogFields, e.Key)
		if !known && e.Key != "_id" {
			return nil, mongoerr.Unsupported("the field %s of local.oplog.rs", e.Key)
		}
		on, isInt := value.AsInt(e.Value)
		named = named || (known && (e.Value == true || (isInt && on == 1)))
	}
	if !named {
		return nil, mongoerr.Unsupported("local.oplog.rs without a projection that names the fields wanted: the operations themselves are not shown")
	}
	matcher, err := query.Compile(filter, r.env)
	if err != nil {
		return nil, err
	}
	entries := r.srv.eng.Oplog()
	if backwards {
		slices.Reverse(entries)
	}
	var out []bson.Raw
	for _, x := range entries {
		d := oplogEntry(x)
		if ok, err := matcher.Match(d); err != nil {
			return nil, err
		} else if !ok {
			continue
		}
		if out = append(out, value.Encode(d)); limit > 0 && int64(len(out)) == limit {
			break
		}
	}
	return out, nil
}

func oplogEntry(x *engine.Entry) bson.D {
	op, ns := "c", x.NS.DB+".$cmd"
	switch x.Kind {
	case engine.Insert:
		op, ns = "i", x.NS.String()
	case engine.Update, engine.Replace:
		op, ns = "u", x.NS.String()
	case engine.Delete:
		op, ns = "d", x.NS.String()
	case engine.Noop:
		op, ns = "n", ""
	default:
	}
	if x.View {
		op, ns = map[engine.Kind]string{engine.Create: "i", engine.Modify: "u", engine.Drop: "d"}[x.Kind], x.NS.DB+".system.views"
	}
	d := bson.D{{Key: "op", Value: op}, {Key: "ns", Value: ns}}
	if x.UUID != nil {
		d = append(d, bson.E{Key: "ui", Value: bson.Binary{Subtype: 4, Data: x.UUID}})
	}
	return append(d, bson.D{
		{Key: "ts", Value: x.At},
		{Key: "t", Value: int64(1)},
		{Key: "v", Value: int64(2)},
		{Key: "wall", Value: bson.NewDateTimeFromTime(x.Wall)},
	}...)
}
