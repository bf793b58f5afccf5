package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/sluice-cdc/sluice/shared/mongodb"
)

// errTooOld reports that a range can no longer be read as of its cluster time.
var errTooOld = errors.New("the source no longer has the state of the range's cluster time")

// errNoCollection is a source that does not exist, or is a view.
var errNoCollection = errors.New("is not a collection of the source")

// examine checks the source before anything is read, and returns the UUID of its collection.
func (b *Builder) examine(ctx context.Context) (uuid bson.Binary, err error) {
	if err := b.examineServer(ctx); err != nil {
		return uuid, err
	}
	if err := b.examineMember(ctx); err != nil {
		return uuid, err
	}
	uuid, collation, err := b.collection(ctx)
	if err != nil {
		return uuid, err
	}
	if collation {
		return uuid, fmt.Errorf("%s has a collation, by which different aggregate ids may be equal: a read model cannot be built from it", b.Source)
	}
	return uuid, b.examineIndex(ctx)
}

func (b *Builder) examineServer(ctx context.Context) error {
	var info struct {
		Version string  `bson:"version"`
		Array   []int32 `bson:"versionArray"`
	}
	if err := b.Source.Collection.Database().RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&info); err != nil {
		return fmt.Errorf("ask the source for its version: %w", err)
	}
	if len(info.Array) == 0 || info.Array[0] < 5 {
		return fmt.Errorf("the source is MongoDB %s, which cannot read outside of a transaction as of a cluster time: a build needs 5.0 or later", info.Version)
	}
	return nil
}

// examineMember checks that reads are answered by a primary. A client of a replica set finds the
// primary; one of a single member reads on that member, whichever it is.
func (b *Builder) examineMember(ctx context.Context) error {
	var member struct {
		Primary bool   `bson:"isWritablePrimary"`
		Set     string `bson:"setName"`
	}
	if err := b.Source.Collection.Database().RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&member); err != nil {
		return fmt.Errorf("ask the source which member it is: %w", err)
	}
	if !member.Primary {
		return fmt.Errorf("the source is a secondary of the set %s, which cannot confirm that it has all events up to now: "+
			"leave directConnection out of SOURCE_MONGODB_URI, so that the build finds the primary", member.Set)
	}
	return nil
}

// collection returns the UUID of the source's collection, and whether it has a collation.
func (b *Builder) collection(ctx context.Context) (uuid bson.Binary, collation bool, err error) {
	database := b.Source.Collection.Database()
	all, err := database.ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: b.Source.Collection.Name()}})
	if err != nil {
		return uuid, false, fmt.Errorf("look up collection %s: %w", b.Source, err)
	}
	if len(all) != 1 || all[0].Type != "collection" || all[0].UUID == nil {
		return uuid, false, fmt.Errorf("%s %w: correct SOURCE_DATABASE and SOURCE_COLLECTION", b.Source, errNoCollection)
	}
	return *all[0].UUID, all[0].Options.Lookup("collation").Type != 0, nil
}

// examineIndex finds the index by which ranges are read.
func (b *Builder) examineIndex(ctx context.Context) error {
	path := b.Source.AggregatePath
	if path == "_id" {
		return nil
	}
	cursor, err := b.Source.Collection.Indexes().List(ctx)
	if err != nil {
		return fmt.Errorf("list the indexes of %s: %w", b.Source, err)
	}
	var indexes []bson.Raw
	if err := cursor.All(ctx, &indexes); err != nil {
		return fmt.Errorf("list the indexes of %s: %w", b.Source, err)
	}
	for _, index := range indexes {
		keys, _ := index.Lookup("key").DocumentOK()
		elements, _ := keys.Elements()
		if len(elements) == 0 || elements[0].Key() != path {
			continue
		}
		if n, ok := elements[0].Value().AsInt64OK(); !ok || n != 1 && n != -1 {
			continue // hashed, or a text index
		}
		whole := true
		for _, option := range []string{"sparse", "partialFilterExpression", "collation", "hidden"} {
			v := index.Lookup(option)
			no, isBool := v.BooleanOK()
			whole = whole && (v.Type == 0 || isBool && !no)
		}
		if whole {
			return nil
		}
	}
	names := []string{path}
	if version := b.Source.VersionPath; version != "" && version != path {
		names = append(names, version)
	}
	return fmt.Errorf("%s has no index on %s that holds all of its documents: create one, such as db.%s.createIndex({%s})",
		b.Source, path, b.Source.Collection.Name(), `"`+strings.Join(names, `": 1, "`)+`": 1`)
}

func (b *Builder) client() *mongo.Client { return b.Source.Collection.Database().Client() }

// asOf calls read with a context in which reads are as of a cluster time. Errors: errTooOld.
func (b *Builder) asOf(ctx context.Context, at bson.Timestamp, read func(context.Context) error) error {
	session, err := b.client().StartSession(options.Session().SetSnapshot(true).SetSnapshotTime(at))
	if err != nil {
		return fmt.Errorf("start session: %w", err)
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	err = read(mongo.NewSessionContext(ctx, session))
	if mongodb.SnapshotGone(err) {
		return fmt.Errorf("%w: %w", errTooOld, err)
	}
	return err
}

// id reads the aggregate's id of one document: of the skip-th behind from, in the order of the
// index, or the last with skip < 0. It is of type 0 if the source is empty.
func (b *Builder) id(ctx context.Context, from bson.RawValue, skip int64) (bson.RawValue, error) {
	path := b.Source.AggregatePath
	o := options.FindOne().SetProjection(b.onlyID()).SetSort(bson.D{{Key: path, Value: 1}})
	if skip < 0 {
		o.SetSort(bson.D{{Key: path, Value: -1}})
	} else {
		o.SetSkip(skip)
	}
	document, err := b.plain().FindOne(ctx, between(path, from, bson.RawValue{}), o).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return bson.RawValue{}, nil
	}
	if err != nil {
		return bson.RawValue{}, fmt.Errorf("read %s: %w", b.Source, err)
	}
	id := document.Lookup(strings.Split(path, ".")...)
	if bracket(id) == "" {
		return id, fmt.Errorf("a document of %s has an aggregate id that a build cannot put in order (%s is of type %s, _id %s): "+
			"ids must be strings, numbers, ObjectIDs, UUIDs or dates, and every document must have one", b.Source, path, id.Type, document.Lookup("_id"))
	}
	return id, nil
}

// divide reads the aggregate ids behind from, in the order of the index and from the index alone,
// and returns the end of each range of about so many documents. The last one, of type 0, is of the
// range without an end.
func (b *Builder) divide(ctx context.Context, from bson.RawValue, size int64) (ends []bson.RawValue, err error) {
	path := b.Source.AggregatePath
	fields := b.onlyID()
	if path != "_id" {
		fields = append(fields, bson.E{Key: "_id", Value: 0})
	}
	cursor, err := b.Source.Collection.Find(ctx, between(path, from, bson.RawValue{}),
		options.Find().SetSort(bson.D{{Key: path, Value: 1}}).SetProjection(fields).SetBatchSize(10_000))
	if err != nil {
		return nil, fmt.Errorf("read the index of %s: %w", b.Source, err)
	}
	defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }()
	steps := strings.Split(path, ".")
	for n := int64(0); cursor.Next(ctx); {
		if n++; n < size {
			continue
		}
		id := cursor.Current.Lookup(steps...)
		if len(ends) == 0 || !ends[len(ends)-1].Equal(id) {
			ends = append(ends, bson.RawValue{Type: id.Type, Value: bytes.Clone(id.Value)})
		}
		n = 0
	}
	if err := cursor.Err(); err != nil {
		return nil, fmt.Errorf("read the index of %s: %w", b.Source, err)
	}
	return append(ends, bson.RawValue{}), nil
}

func (b *Builder) onlyID() bson.D { return bson.D{{Key: b.Source.AggregatePath, Value: 1}} }

// plain returns the collection without concerns, which a session that reads as of a time does not
// take.
func (b *Builder) plain() *mongo.Collection {
	return b.client().Database(b.Source.Collection.Database().Name(), options.Database().SetReadPreference(readpref.Primary())).
		Collection(b.Source.Collection.Name(), options.Collection().SetReadConcern(nil))
}

// between returns a filter for the values behind from, up to and with to; each may be of type 0.
func between(path string, from, to bson.RawValue) bson.D {
	var bounds bson.D
	if from.Type != 0 {
		bounds = append(bounds, bson.E{Key: "$gt", Value: from})
	}
	if to.Type != 0 {
		bounds = append(bounds, bson.E{Key: "$lte", Value: to})
	}
	if len(bounds) == 0 {
		return bson.D{}
	}
	return bson.D{{Key: path, Value: bounds}}
}

// kinds checks that all aggregate ids are of one kind, by the first and the last in the order of
// the index.
func (b *Builder) kinds(ctx context.Context) error {
	first, err := b.id(ctx, bson.RawValue{}, 0)
	if err != nil || first.Type == 0 {
		return err
	}
	last, err := b.id(ctx, bson.RawValue{}, -1)
	if err != nil {
		return err
	}
	if bracket(first) != bracket(last) {
		return fmt.Errorf("%s has aggregate ids of several types, such as %s and %s: a build would miss some of them. Correct the documents", b.Source, first, last)
	}
	return nil
}

// maxRange is how many bytes the effects of one range may have, so that the ranges that are held
// bound the memory of a build, whatever the size of the documents.
const maxRange = 4 << 20

// read reads the documents of a range that begins behind from, by aggregate and version, and folds
// each aggregate. Once the effects are large, the range ends before its end.
func (b *Builder) read(ctx context.Context, from bson.RawValue, t *taken) error {
	path := b.Source.AggregatePath
	order := bson.D{{Key: path, Value: 1}}
	if version := b.Source.VersionPath; version != "" && version != path {
		order = append(order, bson.E{Key: version, Value: 1})
	}
	if path != "_id" {
		order = append(order, bson.E{Key: "_id", Value: 1})
	}
	cursor, err := b.plain().Find(ctx, between(path, from, t.span.To), options.Find().SetSort(order).SetAllowDiskUse(true))
	if err != nil {
		return fmt.Errorf("read %s: %w", b.Source, err)
	}
	defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }()
	var current *fold
	var last bson.RawValue // its id
	steps := strings.Split(path, ".")
	for cursor.Next(ctx) {
		id := cursor.Current.Lookup(steps...)
		if bracket(id) == "" {
			return fmt.Errorf("document %s of %s has no aggregate id at %s", cursor.Current.Lookup("_id"), b.Source, path)
		}
		c, other := b.Source.inserts(cursor.Current)
		if current == nil || current.built.Aggregate != c.Aggregate {
			if t.add(current); t.bytes > maxRange {
				t.span.To = last
				return nil
			}
			current, last = newFold(b.Projection, c.Aggregate), bson.RawValue{Type: id.Type, Value: bytes.Clone(id.Value)}
		}
		c.Stream, other.Stream = b.Stream.Name, b.Stream.Name
		if !current.follows(c) || b.Skip[documentText(cursor.Current)] {
			continue
		}
		if err := current.add(b.Projection, c, other); err != nil {
			return err
		}
	}
	if err := cursor.Err(); err != nil {
		return fmt.Errorf("read %s: %w", b.Source, err)
	}
	t.add(current)
	return nil
}
