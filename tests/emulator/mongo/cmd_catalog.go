package mongo

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/engine"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

func runCreate(ctx context.Context, r *request) (bson.D, error) {
	ns, err := r.ns()
	if err != nil {
		return nil, err
	}
	if err := r.refuse("timeseries", "clusteredIndex", "idIndex", "expireAfterSeconds", "encryptedFields", "storageEngine", "indexOptionDefaults"); err != nil {
		return nil, err
	}
	options, err := r.viewOptions(ns)
	if err != nil {
		return nil, err
	}
	if r.env.Collation != nil {
		given, _ := r.get("collation").(bson.D)
		options = append(options, bson.E{Key: "collation", Value: query.WholeCollation(given, r.env.Collation)})
	}
	for _, key := range []string{"capped", "size", "max"} {
		if r.has(key) {
			options = append(options, bson.E{Key: key, Value: asSmallAsItFits(r.get(key))})
		}
	}
	if images, err := r.doc("changeStreamPreAndPostImages"); err != nil {
		return nil, err
	} else if len(images) > 0 {
		if err := checkImages(images); err != nil {
			return nil, err
		}
		options = append(options, bson.E{Key: "changeStreamPreAndPostImages", Value: images})
	}
	validation, err := r.validation()
	if err != nil {
		return nil, err
	}
	if info, exists := r.srv.eng.Lookup(ns); exists && r.srv.opts.before(7, 0) {
		return nil, mongoerr.New(mongoerr.NamespaceExists, "Collection %s already exists. NS: %s", info.NS, info.NS)
	}
	return bson.D{}, r.srv.eng.Create(ctx, ns, r.txn, append(options, validation...))
}

// asSmallAsItFits returns how a server keeps a whole number, whatever type a client has sent it in.
func asSmallAsItFits(v any) any {
	n, whole := value.AsInt(v)
	switch {
	case !whole:
		return v
	case int64(int32(n)) == n:
		return int32(n)
	}
	return n
}

// validation reads the command's options for validating documents.
func (r *request) validation() (bson.D, error) {
	var options bson.D
	for _, key := range []string{"validator", "validationLevel", "validationAction"} {
		if !r.has(key) {
			continue
		}
		if key == "validator" {
			if _, err := r.doc(key); err != nil {
				return nil, err
			}
		}
		options = append(options, bson.E{Key: key, Value: r.get(key)})
	}
	return options, nil
}

func checkImages(d bson.D) error {
	if _, ok := field(d, "enabled").(bool); !ok || len(d) != 1 {
		return mongoerr.New(mongoerr.TypeMismatch, "changeStreamPreAndPostImages needs exactly a boolean 'enabled'")
	}
	return nil
}

func runCollMod(ctx context.Context, r *request) (bson.D, error) {
	ns, err := r.ns()
	if err != nil {
		return nil, err
	}
	if err := r.refuse("index", "cappedSize", "cappedMax", "expireAfterSeconds", "timeseries"); err != nil {
		return nil, err
	}
	info, exists := r.srv.eng.Lookup(ns)
	switch {
	case info.View:
		definition, err := r.modifyView(ns, info.Options)
		if err != nil {
			return nil, err
		}
		return bson.D{}, r.srv.eng.Modify(ctx, ns, definition)
	case exists && r.has("pipeline"):
		return nil, mongoerr.New(mongoerr.InvalidOptions, "option only supported on a view: pipeline")
	case exists && r.has("viewOn"):
		return nil, mongoerr.New(mongoerr.InvalidOptions, "option only supported on a view: viewOn")
	}
	images, err := r.doc("changeStreamPreAndPostImages")
	if err != nil {
		return nil, err
	}
	changed, err := r.validation()
	if err != nil {
		return nil, err
	}
	if len(images) > 0 {
		if err := checkImages(images); err != nil {
			return nil, err
		}
		changed = append(changed, bson.E{Key: "changeStreamPreAndPostImages", Value: images})
	}
	return bson.D{}, r.srv.eng.Modify(ctx, ns, changed)
}

func runDrop(ctx context.Context, r *request) (bson.D, error) {
	ns, err := r.ns()
	if err != nil {
		return nil, err
	}
	info, _ := r.srv.eng.Lookup(ns)
	found, err := r.srv.eng.Drop(ctx, ns)
	if !found && err == nil && r.srv.opts.before(7, 0) {
		return nil, mongoerr.New(mongoerr.NamespaceNotFound, "ns not found")
	}
	if !found || err != nil {
		return bson.D{}, err
	}
	if info.View {
		return bson.D{{Key: "ns", Value: ns.String()}}, nil
	}
	return bson.D{{Key: "nIndexesWas", Value: int32(len(info.Indexes) + 1)}, {Key: "ns", Value: ns.String()}}, nil
}

func runDropDatabase(ctx context.Context, r *request) (bson.D, error) {
	return bson.D{{Key: "dropped", Value: r.db}}, r.srv.eng.DropDatabase(ctx, r.db)
}

func runRename(ctx context.Context, r *request) (bson.D, error) {
	if r.db != "admin" {
		return nil, mongoerr.New(mongoerr.Unauthorized, "renameCollection may only be run against the admin database.")
	}
	from, _ := r.body[0].Value.(string)
	to, _ := r.get("to").(string)
	source, err := parseNS(from)
	if err != nil {
		return nil, err
	}
	target, err := parseNS(to)
	if err != nil {
		return nil, err
	}
	if source.DB != target.DB {
		return nil, mongoerr.Unsupported("renaming across databases")
	}
	return bson.D{}, r.srv.eng.Rename(ctx, source, target, r.flag("dropTarget"))
}

func runListCollections(_ context.Context, r *request) (bson.D, error) {
	filter, err := r.doc("filter")
	if err != nil {
		return nil, err
	}
	m, err := query.Compile(filter, r.env)
	if err != nil {
		return nil, err
	}
	var docs []bson.Raw
	all := r.srv.eng.Collections(r.db)
	// Views come last, behind the collection that holds them.
	slices.SortStableFunc(all, func(a, b engine.Info) int {
		switch {
		case a.View == b.View:
			return 0
		case a.View:
			return 1
		}
		return -1
	})
	if at := slices.IndexFunc(all, func(c engine.Info) bool { return c.View }); at >= 0 {
		all = slices.Insert(all, at, engine.Info{NS: engine.NS{DB: r.db, Coll: systemViews}, UUID: viewsUUID(r.db), Options: bson.D{}})
	}
	if r.db == "local" {
		all = append(all, engine.Info{NS: oplogNS, Options: bson.D{{Key: "capped", Value: true}}}, engine.Info{NS: replsetNS, Options: bson.D{}})
	}
	for _, c := range all {
		d := bson.D{{Key: "name", Value: c.NS.Coll}, {Key: "type", Value: "collection"}}
		switch {
		case c.View:
			d[1].Value = "view"
			if !r.flag("nameOnly") {
				d = append(d, bson.E{Key: "options", Value: c.Options}, bson.E{Key: "info", Value: bson.D{{Key: "readOnly", Value: true}}})
			}
		case !r.flag("nameOnly"):
			d = append(d, bson.D{
				{Key: "options", Value: c.Options},
				{Key: "info", Value: bson.D{{Key: "readOnly", Value: false}, {Key: "uuid", Value: bson.Binary{Subtype: 4, Data: c.UUID}}}},
				{Key: "idIndex", Value: idIndex},
			}...)
		}
		ok, err := m.Match(d)
		if err != nil {
			return nil, err
		}
		if ok {
			docs = append(docs, value.Encode(d))
		}
	}
	opts, err := r.doc("cursor")
	if err != nil {
		return nil, err
	}
	return r.openCursor(r.db+".$cmd.listCollections", docs, opts)
}

// systemViews is the collection of each database that holds its views.
const systemViews = "system.views"

func viewsUUID(db string) []byte {
	sum := sha256.Sum256([]byte(db))
	return sum[:16]
}

func runListDatabases(_ context.Context, r *request) (bson.D, error) {
	filter, err := r.doc("filter")
	if err != nil {
		return nil, err
	}
	m, err := query.Compile(filter, r.env)
	if err != nil {
		return nil, err
	}
	names := []string{"admin", "config"}
	if r.srv.opts.Mongos == nil {
		names = append(names, "local")
	}
	for _, c := range r.srv.eng.Collections("") {
		if !slices.Contains(names, c.NS.DB) {
			names = append(names, c.NS.DB)
		}
	}
	slices.Sort(names)
	list := []bson.D{}
	for _, n := range names {
		d := bson.D{{Key: "name", Value: n}}
		if !r.flag("nameOnly") {
			d = append(d, bson.E{Key: "sizeOnDisk", Value: int64(8192)}, bson.E{Key: "empty", Value: false})
		}
		ok, err := m.Match(d)
		if err != nil {
			return nil, err
		}
		if ok {
			list = append(list, d)
		}
	}
	if r.flag("nameOnly") {
		return bson.D{{Key: "databases", Value: list}}, nil
	}
	return bson.D{{Key: "databases", Value: list}, {Key: "totalSize", Value: int64(8192 * len(list))}, {Key: "totalSizeMb", Value: int64(0)}}, nil
}

var idIndex = bson.D{{Key: "v", Value: int32(2)}, {Key: "key", Value: bson.D{{Key: "_id", Value: int32(1)}}}, {Key: "name", Value: "_id_"}}

func runListIndexes(_ context.Context, r *request) (bson.D, error) {
	ns, err := r.ns()
	if err != nil {
		return nil, err
	}
	info, ok := r.srv.eng.Lookup(ns)
	if !ok {
		return nil, mongoerr.New(mongoerr.NamespaceNotFound, "ns does not exist: %s", ns)
	}
	if info.View {
		return nil, mongoerr.New(mongoerr.ViewNotSupported, "Namespace %s is a view, not a collection", ns)
	}
	docs := []bson.Raw{value.Encode(idIndex)}
	for _, ix := range info.Indexes {
		docs = append(docs, value.Encode(ix.Spec))
	}
	opts, err := r.doc("cursor")
	if err != nil {
		return nil, err
	}
	return r.openCursor(ns.String(), docs, opts)
}

func runCreateIndexes(ctx context.Context, r *request) (bson.D, error) {
	ns, err := r.ns()
	if err != nil {
		return nil, err
	}
	list, err := r.list("indexes")
	if err != nil {
		return nil, err
	}
	var built []*engine.Index
	for _, raw := range list {
		ix, err := parseIndex(raw)
		if err != nil {
			return nil, err
		}
		if ix != nil {
			built = append(built, ix)
		}
	}
	info, existed := r.srv.eng.Lookup(ns)
	first, last, created := len(info.Indexes)+1, len(info.Indexes)+1, !existed && r.txn == nil
	for _, ix := range built {
		_, after, made, err := r.srv.eng.CreateIndex(ctx, ns, r.txn, ix)
		if err != nil {
			return nil, err
		}
		last, created = after, created || made
		if ix.TTL >= 0 {
			r.srv.armTTL()
		}
	}
	reply := bson.D{{Key: "numIndexesBefore", Value: int32(first)}, {Key: "numIndexesAfter", Value: int32(last)}}
	if first == last {
		return append(reply, bson.E{Key: "note", Value: "all indexes already exist"}), nil
	}
	reply = append(reply, bson.E{Key: "createdCollectionAutomatically", Value: created})
	if r.txn == nil {
		reply = append(reply, bson.E{Key: "commitQuorum", Value: cmp.Or(r.get("commitQuorum"), any("votingMembers"))})
	}
	return reply, nil
}

// parseIndex reads one specification; nil stands for the _id index, which is always there.
func parseIndex(raw bson.Raw) (*engine.Index, error) {
	d, err := value.Decode(raw)
	if err != nil {
		return nil, err
	}
	for _, e := range d {
		switch e.Key {
		case "key", "name", "unique", "sparse", "partialFilterExpression", "expireAfterSeconds", "v", "background", "collation":
		case "hidden":
			if e.Value == true {
				return nil, mongoerr.Unsupported("hidden indexes")
			}
		default:
			return nil, mongoerr.Unsupported("the index option %q", e.Key)
		}
	}
	key, ok := field(d, "key").(bson.D)
	if !ok {
		return nil, mongoerr.New(mongoerr.FailedToParse, "The 'key' field is a required property of an index specification")
	}
	if len(key) == 1 && key[0].Key == "_id" {
		return nil, nil
	}
	name, ok := field(d, "name").(string)
	if !ok || name == "" {
		return nil, mongoerr.New(mongoerr.FailedToParse, "The 'name' field is a required property of an index specification")
	}
	partial, _ := field(d, "partialFilterExpression").(bson.D)
	spec := bson.D{{Key: "v", Value: int32(2)}}
	for _, e := range d {
		switch {
		case e.Key == "v", slices.Contains([]string{"unique", "sparse", "hidden"}, e.Key) && e.Value == false:
		case e.Key == "collation":
			c, err := query.ParseCollation(e.Value)
			if err != nil {
				return nil, err
			}
			if c != nil {
				spec = append(spec, bson.E{Key: e.Key, Value: query.WholeCollation(e.Value.(bson.D), c)})
			}
		default:
			spec = append(spec, e)
		}
	}
	if slices.ContainsFunc(key, func(k bson.E) bool { return strings.Contains(k.Key, "$**") }) {
		return nil, mongoerr.Unsupported("wildcard indexes")
	}
	ix, err := engine.NewIndex(name, key, field(d, "unique") == true, field(d, "sparse") == true, partial, spec)
	if err != nil {
		return nil, err
	}
	if v, ok := value.Get(d, "expireAfterSeconds"); ok {
		seconds, isNumber := value.AsInt(v)
		switch {
		case !isNumber || seconds < 0 || seconds > math.MaxInt32:
			return nil, mongoerr.New(mongoerr.CannotCreateIndex, "TTL index 'expireAfterSeconds' option must be within an acceptable range, not %v", v)
		case len(key) > 1:
			return nil, mongoerr.New(mongoerr.CannotCreateIndex, "TTL indexes are single-field indexes, compound indexes do not support TTL. Index spec: %s", name)
		}
		ix.TTL = time.Duration(seconds) * time.Second
	}
	return ix, nil
}

func runDropIndexes(ctx context.Context, r *request) (bson.D, error) {
	ns, err := r.ns()
	if err != nil {
		return nil, err
	}
	want := bson.A{r.get("index")}
	if list, ok := r.get("index").(bson.A); ok {
		want = list
	}
	if slices.Contains(want, any("_id_")) {
		return nil, mongoerr.New(mongoerr.InvalidOptions, "cannot drop _id index")
	}
	before, found, err := r.srv.eng.DropIndexes(ctx, ns, func(ix *engine.Index) bool {
		return slices.ContainsFunc(want, func(w any) bool {
			key, isKey := w.(bson.D)
			return w == any("*") || w == any(ix.Name) || (isKey && value.Equal(key, ix.Key))
		})
	})
	if err != nil {
		return nil, err
	}
	if !found && !slices.Contains(want, any("*")) {
		var names []string
		for _, w := range want {
			names = append(names, fmt.Sprint(w))
		}
		return nil, mongoerr.New(mongoerr.IndexNotFound, "index not found with name [%s]", strings.Join(names, ", "))
	}
	return bson.D{{Key: "nIndexesWas", Value: int32(before)}}, nil
}
