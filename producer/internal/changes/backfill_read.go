package changes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/mongodb"
)

// errTooOld reports a cluster time as of which the source cannot be read any more.
var errTooOld = errors.New("the source no longer has the state of this cluster time")

// maxChunkBytes is the size at which a chunk ends.
const maxChunkBytes = 4 << 20

// backfillSource reads the documents of the collection in the order of their keys. It belongs to
// one goroutine.
type backfillSource struct {
	collection *mongo.Collection
	config     *Config
	keys       []string // fields of an index
	versions   bool     // rows carry versions
	settings   string   // hash of what decides the rows
	// first is the source's time when this leader was about to read its first chunk: all former
	// leaders' changes are before it. Zero: it is not known yet.
	first     bson.Timestamp
	notBefore time.Time
	slow      int // the maximum number of documents after a read took too long; 0: none did
}

// row is a document of a snapshot.
type row struct {
	keys bson.Raw
	// document is what was read, without a PIPELINE; with one, event is what the pipeline makes of
	// it. Both are nil if PIPELINE does not pass the document.
	document, event bson.Raw
}

// read returns the documents that a snapshot has not reached as of a cluster time, at most limit,
// and how far that time is behind the source's. Errors: errTooOld.
func (b *backfillSource) read(ctx context.Context, state *checkpoint.Backfill, at bson.Timestamp, limit int) (rows []row, lag time.Duration, err error) {
	session, err := b.collection.Database().Client().StartSession(options.Session().SetSnapshot(true).SetSnapshotTime(at))
	if err != nil {
		return nil, 0, fmt.Errorf("start session: %w", err)
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	ctx = mongo.NewSessionContext(ctx, session)
	var documents []bson.Raw
	if len(state.Aggregates) > 0 {
		documents, err = b.documentsOf(ctx, state.Aggregates, state.Cursor, limit)
	} else {
		documents, err = b.documents(ctx, state.Cursor, limit)
	}
	if err == nil {
		rows, err = b.rows(ctx, documents, at)
	}
	switch {
	case mongodb.SnapshotGone(err):
		return nil, 0, fmt.Errorf("%w: %w", errTooOld, err)
	case err != nil:
		return nil, 0, fmt.Errorf("read the collection as of %v: %w", at, err)
	}
	if now := session.OperationTime(); now != nil {
		lag = time.Duration(int64(now.T)-int64(at.T)) * time.Second
	}
	return rows, lag, nil
}

// count returns how many documents the aggregates have, or the collection, about.
func (b *backfillSource) count(ctx context.Context, aggregates []string) (int64, error) {
	if len(aggregates) == 0 {
		return b.collection.EstimatedDocumentCount(ctx)
	}
	return b.collection.CountDocuments(ctx, b.filter(aggregates, nil))
}

// filter returns the condition that a document belongs to one of the aggregates, without those that
// are wholly before the cursor.
func (b *backfillSource) filter(aggregates []string, cursor bson.Raw) bson.D {
	values := bson.A{}
	for _, aggregate := range aggregates {
		for _, v := range envelope.Values(aggregate, false) {
			kind, data, err := bson.MarshalValue(v)
			if err == nil && (len(cursor) == 0 || mongodb.Compare(bson.RawValue{Type: kind, Value: data}, cursor.Lookup(b.keys[0])) >= 0) {
				values = append(values, v)
			}
		}
	}
	return bson.D{{Key: b.keys[0], Value: bson.D{{Key: "$in", Value: values}}}}
}

// documentsOf returns the documents of the aggregates behind cursor, at most limit. Those of the
// cursor's own aggregate are read from the first on.
func (b *backfillSource) documentsOf(ctx context.Context, aggregates []string, cursor bson.Raw, limit int) ([]bson.Raw, error) {
	documents, _, err := b.find(ctx, b.filter(aggregates, cursor), cursor, limit, options.Find())
	return documents, err
}

// documents returns the documents behind cursor, at most limit.
func (b *backfillSource) documents(ctx context.Context, cursor bson.Raw, limit int) (documents []bson.Raw, err error) {
	o := options.Find().SetLimit(int64(limit) + 2) // with the cursor, and one that shows that there are more
	if len(cursor) > 0 {
		// A condition on a field matches values of one type; the bound of an index is of all types.
		o.SetMin(cursor)
	}
	documents, whole, err := b.find(ctx, bson.D{}, cursor, limit, o)
	if err != nil || !whole || len(cursor) == 0 {
		return documents, err
	}
	// The bound leaves out the greatest key.
	greatest, _, err := b.find(ctx, bson.D{{Key: b.keys[0], Value: bson.MaxKey{}}}, cursor, limit, options.Find())
	if err != nil {
		return nil, err
	}
	for _, document := range greatest {
		if n := len(documents); n < limit && (n == 0 || compareKeys(b.documentKeys(documents[n-1]), b.documentKeys(document)) < 0) {
			documents = append(documents, document)
		}
	}
	return documents, nil
}

// find returns the documents of a query behind cursor, in the order of the keys, at most limit and
// [maxChunkBytes]. whole reports whether there are no more.
func (b *backfillSource) find(
	ctx context.Context, filter bson.D, cursor bson.Raw, limit int, o *options.FindOptionsBuilder,
) (documents []bson.Raw, whole bool, err error) {
	index := make(bson.D, len(b.keys))
	for i, key := range b.keys {
		index[i] = bson.E{Key: key, Value: 1}
	}
	found, err := b.plain().Find(ctx, filter, o.SetSort(index).SetHint(index).SetBatchSize(int32(limit)+2))
	if err != nil {
		return nil, false, err
	}
	defer mongodb.CloseCursor(ctx, found)
	size := 0
	for found.Next(ctx) {
		keys := b.documentKeys(found.Current)
		if len(cursor) > 0 && compareKeys(keys, cursor) <= 0 {
			continue // the bound includes the cursor itself
		}
		if len(documents) == limit || len(documents) > 0 && size+len(found.Current) > maxChunkBytes {
			return documents, false, nil
		}
		if err := b.checkKeys(keys); err != nil {
			return nil, false, &permanentError{err}
		}
		documents = append(documents, bytes.Clone(found.Current))
		size += len(found.Current)
	}
	return documents, true, found.Err()
}

// checkKeys refuses a document that would be read several times, once for each element of an array.
func (b *backfillSource) checkKeys(keys bson.Raw) error {
	elements, _ := keys.Elements()
	for _, e := range elements {
		if e.Value().Type == bson.TypeArray {
			return fmt.Errorf("%w: the document %s has an array in %s", ErrSnapshotRefused, elements[len(elements)-1].Value(), e.Key())
		}
	}
	return nil
}

// rows returns the rows of documents. PIPELINE is applied to change events of inserts.
func (b *backfillSource) rows(ctx context.Context, documents []bson.Raw, at bson.Timestamp) ([]row, error) {
	rows, ids := make([]row, len(documents)), make([]bson.RawValue, len(documents))
	for i, document := range documents {
		rows[i], ids[i] = row{keys: b.documentKeys(document), document: document}, document.Lookup("_id")
	}
	if len(b.config.Pipeline) == 0 {
		return rows, nil
	}
	literal := func(v any) bson.D { return bson.D{{Key: "$literal", Value: v}} }
	pipeline := append(mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}}},
		{{Key: "$replaceWith", Value: bson.D{
			{Key: "_id", Value: literal(bson.D{})},
			{Key: "operationType", Value: string(envelope.Insert)},
			{Key: "ns", Value: literal(b.namespace())},
			{Key: "documentKey", Value: bson.D{{Key: "_id", Value: "$_id"}}},
			{Key: "clusterTime", Value: literal(at)},
			{Key: "fullDocument", Value: "$$ROOT"},
		}}},
	}, b.config.Pipeline...)
	found, err := b.plain().Aggregate(ctx, pipeline)
	if err != nil {
		return nil, err
	}
	var events []bson.Raw
	if err := found.All(ctx, &events); err != nil {
		return nil, err
	}
	byID := make(map[string]bson.Raw, len(events))
	for _, event := range events {
		id := event.Lookup("documentKey", "_id")
		byID[string(id.Type)+string(id.Value)] = event
	}
	for i, id := range ids {
		rows[i].document, rows[i].event = nil, byID[string(id.Type)+string(id.Value)]
	}
	return rows, nil
}

// event returns a document as the change event of an insert.
func (b *backfillSource) event(document bson.Raw, at bson.Timestamp) (bson.Raw, error) {
	return bson.Marshal(bson.D{
		{Key: "_id", Value: bson.D{}},
		{Key: "operationType", Value: string(envelope.Insert)},
		{Key: "ns", Value: b.namespace()},
		{Key: "documentKey", Value: bson.D{{Key: "_id", Value: document.Lookup("_id")}}},
		{Key: "clusterTime", Value: at},
		{Key: "fullDocument", Value: document},
	})
}

func (b *backfillSource) namespace() bson.D {
	return bson.D{{Key: "db", Value: b.collection.Database().Name()}, {Key: "coll", Value: b.collection.Name()}}
}

// plain returns the collection without concerns, which a session that reads as of a time does not
// take.
func (b *backfillSource) plain() *mongo.Collection {
	preference := readpref.Primary()
	if b.config.Backfill.Secondary {
		preference = readpref.SecondaryPreferred()
	}
	return b.collection.Database().Client().Database(b.collection.Database().Name(), options.Database().SetReadPreference(preference)).
		Collection(b.collection.Name(), options.Collection().SetReadConcern(nil))
}

// documentKeys returns the keys of a document, as the bound of an index.
func (b *backfillSource) documentKeys(document bson.Raw) bson.Raw {
	return b.keysOf(document, document.Lookup("_id"))
}

// eventKeys returns the keys of the document that an event is about.
func (b *backfillSource) eventKeys(event bson.Raw) bson.Raw {
	document, _ := event.Lookup("fullDocument").DocumentOK()
	return b.keysOf(document, event.Lookup("documentKey", "_id"))
}

func (b *backfillSource) keysOf(document bson.Raw, id bson.RawValue) bson.Raw {
	keys := make(bson.D, len(b.keys))
	for i, key := range b.keys {
		keys[i] = bson.E{Key: key, Value: orNull(id)}
		if key != "_id" {
			keys[i].Value = orNull(at(document, key))
		}
	}
	raw, _ := bson.Marshal(keys) // of values that were read
	return raw
}

// orNull returns null for a missing value, as an index has it.
func orNull(v bson.RawValue) bson.RawValue {
	if v.Type == 0 {
		return bson.RawValue{Type: bson.TypeNull}
	}
	return v
}

// compareKeys orders documents by their keys.
func compareKeys(a, b bson.Raw) int {
	x, _ := a.Values()
	y, _ := b.Values()
	return slices.CompareFunc(x, y, mongodb.Compare)
}
