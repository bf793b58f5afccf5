package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector/projection/memory"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/internal/workload"
)

// reading is how a ring's producers read documents that change.
type reading struct {
	name      string
	aggregate string // the path of the aggregate's id
	settings  []string
	images    bool
	// ahead means that the mirror may be ahead of a change: a document that is looked up may be
	// newer than the change, or even a later document with the same _id. Then only the final state
	// is judged.
	ahead bool
}

// readings are those that allow a mirror: deltas, documents that are looked up, and images in
// aggregates of several documents.
var readings = []reading{
	{"deltas", "_id", []string{"FULL_DOCUMENT=default", "FULL_DOCUMENT_BEFORE_CHANGE=off"}, false, false},
	{"looked-up", "_id", []string{"FULL_DOCUMENT=updateLookup", "FULL_DOCUMENT_BEFORE_CHANGE=off"}, false, true},
	{"images", "owner", []string{"FULL_DOCUMENT=required", "FULL_DOCUMENT_BEFORE_CHANGE=required"}, true, false},
}

// documents are what a ring changes, and what is observed of them in the mirror. Every write gives
// its document a revision that grows across all documents. So a mirror that goes back is noticed,
// even if it recovers.
type documents struct {
	reading reading
	source  *driver.Collection
	mirror  *driver.Collection
	rec     *history.Recorder
	random  *rand.Rand // of the writer
	writing sync.Mutex // held during a write, and to prevent writes

	mu       sync.Mutex // guards everything below
	revision int64
	written  map[string]version // by _id
	seen     map[string]version
	wrong    []string // states that the mirror must never show
}

// version is the state of a document.
type version struct {
	revision int64
	gone     bool
}

// ids returns _ids of several types. Two of them have the same text, and so form one aggregate if
// the aggregate is determined by _id.
func ids() []any {
	all := []any{17, "17", int64(1) << 40, 2.5, bson.NewObjectID(), bson.Binary{Subtype: 4, Data: []byte("0123456789abcdef")}, bson.D{{Key: "shop", Value: "a"}, {Key: "n", Value: 1}}, "--all"}
	for n := range 12 {
		all = append(all, fmt.Sprintf("document-%d", n))
	}
	return all
}

func newDocuments(ctx context.Context, client *driver.Client, o ringOptions, rec *history.Recorder) (*documents, error) {
	d := &documents{
		reading: *o.documents, rec: rec, random: rand.New(rand.NewPCG(o.seed, 0xd0c)),
		source: client.Database("shop").Collection("documents"), mirror: client.Database("readmodel").Collection("mirror"),
		written: map[string]version{}, seen: map[string]version{},
	}
	create := options.CreateCollection()
	if d.reading.images {
		create.SetChangeStreamPreAndPostImages(bson.D{{Key: "enabled", Value: true}})
	}
	return d, d.source.Database().CreateCollection(ctx, d.source.Name(), create)
}

// key returns a text that is unique to an _id.
func key(id any) string { return memory.Text(id) }

// load writes at the ring's rate until the work is over, unless too much is in flight.
func (d *documents) load(ctx context.Context, r *ring) error {
	all := ids()
	pause := time.Duration(float64(time.Second) / r.options.rate)
	for !r.loadingOver.Load() {
		if r.room() > 0 {
			if err := d.write(ctx, all[d.random.IntN(len(all))]); err != nil {
				return err
			}
		}
		if err := retry.Sleep(ctx, pause); err != nil {
			return err
		}
	}
	return nil
}

// write changes a document in a random way. Each way makes exactly one change event.
func (d *documents) write(ctx context.Context, id any) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	d.mu.Lock()
	d.revision++
	revision, before := d.revision, d.written[key(id)]
	there := before.revision > 0 && !before.gone
	d.mu.Unlock()
	owner := fmt.Sprintf("owner-%d", len(key(id))%4)
	aggregate := owner
	if d.reading.aggregate == "_id" {
		raw, err := bson.Marshal(bson.D{{Key: "v", Value: id}})
		if err != nil {
			return err
		}
		aggregate, _ = envelope.Text(bson.Raw(raw).Lookup("v"))
	}
	d.rec.Commit(history.Commit{Aggregate: aggregate, At: time.Now()})
	gone, err := d.change(ctx, id, owner, revision, there)
	if err != nil {
		return fmt.Errorf("write document %s: %w", key(id), err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.written[key(id)] = version{revision, gone}
	return nil
}

func (d *documents) change(ctx context.Context, id any, owner string, revision int64, there bool) (gone bool, err error) {
	byID := bson.D{{Key: "_id", Value: id}}
	head := bson.D{{Key: "owner", Value: owner}, {Key: "revision", Value: revision}}
	set := func(more ...bson.E) bson.D { return append(bson.D{{Key: "revision", Value: revision}}, more...) }
	update := func(operators bson.D) (bool, error) {
		return false, exactlyOne(d.source.UpdateOne(ctx, byID, operators))
	}
	if !there {
		switch d.random.IntN(3) {
		case 0:
			_, err = d.source.InsertOne(ctx, append(append(byID, head...), d.content()...))
		case 1:
			_, err = d.source.UpdateOne(ctx, byID, bson.D{{Key: "$set", Value: append(head, bson.E{Key: "n", Value: 1})}}, options.UpdateOne().SetUpsert(true))
		default:
			_, err = d.source.ReplaceOne(ctx, byID, append(head, d.content()...), options.Replace().SetUpsert(true))
		}
		return false, err
	}
	switch d.random.IntN(10) {
	case 0, 1:
		_, err = d.source.DeleteOne(ctx, byID)
		return true, err
	case 2, 3:
		return false, exactlyOne(d.source.ReplaceOne(ctx, byID, append(head, d.content()...)))
	case 4:
		return update(bson.D{{Key: "$set", Value: set(bson.E{Key: "nested.deep.value", Value: d.random.IntN(5)}, bson.E{Key: "a", Value: "set"})}})
	case 5:
		return update(bson.D{{Key: "$set", Value: set()}, {Key: "$unset", Value: bson.D{{Key: "a", Value: ""}, {Key: "nested", Value: ""}}}})
	case 6:
		return update(bson.D{{Key: "$set", Value: set()}, {Key: "$push", Value: bson.D{{Key: "list", Value: bson.D{{Key: "r", Value: revision}}}}}})
	case 7:
		return update(bson.D{{Key: "$set", Value: set()}, {Key: "$pop", Value: bson.D{{Key: "list", Value: 1}}}})
	case 8:
		return update(bson.D{{Key: "$set", Value: set()}, {Key: "$inc", Value: bson.D{{Key: "count", Value: int64(1)}}}})
	default:
		return update(bson.D{{Key: "$set", Value: set(bson.E{Key: "count", Value: 0.5})}})
	}
}

func exactlyOne(result *driver.UpdateResult, err error) error {
	if err == nil && result.ModifiedCount != 1 {
		err = fmt.Errorf("%d documents were changed instead of one", result.ModifiedCount)
	}
	return err
}

// content returns, in random order, fields that a conversion to JSON would change.
func (d *documents) content() bson.D {
	decimal, _ := bson.ParseDecimal128("1.50") // it is valid
	all := bson.D{
		{Key: "wrapped", Value: bson.D{{Key: "$oid", Value: "not one"}, {Key: "$date", Value: int64(1)}}},
		{Key: "dotted.key", Value: 1},
		{Key: "double", Value: math.Copysign(0, -1)},
		{Key: "nan", Value: math.NaN()},
		{Key: "decimal", Value: decimal},
		{Key: "long", Value: int64(1)},
		{Key: "date", Value: bson.DateTime(math.MinInt64)},
		{Key: "regex", Value: bson.Regex{Pattern: "a/b", Options: "i"}},
		{Key: "list", Value: bson.A{1, int64(1), 1.0, nil, bson.A{}}},
		{Key: "count", Value: int64(7)},
		{Key: "nested", Value: bson.D{{Key: "b", Value: 1}, {Key: "a", Value: bson.MinKey{}}}},
	}
	chosen := bson.D{}
	for _, i := range d.random.Perm(len(all)) {
		if d.random.IntN(2) == 0 {
			chosen = append(chosen, all[i])
		}
	}
	return chosen
}

// observe takes one change of the mirror.
func (d *documents) observe(change bson.Raw) {
	var event struct {
		Operation string   `bson:"operationType"`
		Key       bson.D   `bson:"documentKey"`
		Document  bson.Raw `bson:"fullDocument"`
		Update    bson.Raw `bson:"updateDescription"`
	}
	err := bson.Unmarshal(change, &event)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil || len(event.Key) == 0 {
		d.wrong = append(d.wrong, fmt.Sprintf("a change of the mirror cannot be read: %v", err))
		return
	}
	id := key(event.Key[0].Value)
	now, before := d.seen[id], d.seen[id]
	if now.gone = event.Operation == "delete"; !now.gone {
		value := event.Document.Lookup("revision")
		if event.Operation == "update" {
			value = event.Update.Lookup("updatedFields", "revision")
		}
		revision, ok := value.AsInt64OK()
		if !ok {
			return // the first of two updates that one change makes
		}
		if now.revision = revision; revision <= before.revision && !d.reading.ahead {
			d.wrong = append(d.wrong, fmt.Sprintf("document %s went from revision %d to %d (%s)", id, before.revision, revision, event.Operation))
		}
	}
	d.seen[id] = now
}

// mark returns a function that reports whether everything written before the call of mark is in the
// mirror.
func (d *documents) mark() func() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	want := maps.Clone(d.written)
	return func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		for id, v := range want {
			seen := d.seen[id]
			if ahead := seen.revision >= v.revision && (!v.gone || seen.revision > v.revision); !ahead && (!v.gone || seen.revision > 0 && !seen.gone) {
				return false
			}
		}
		return true
	}
}

// differences compares the mirror with its source, byte for byte, while the writer pauses.
func (d *documents) differences(ctx context.Context) (found []string, err error) {
	read := func(c *driver.Collection) (map[string]bson.Raw, error) {
		byID := map[string]bson.Raw{}
		return byID, workload.Each(ctx, c, func(document bson.Raw) error {
			byID[document.Lookup("_id").String()] = slices.Clone(document)
			return nil
		})
	}
	theirs, err := read(d.source)
	ours, otherErr := read(d.mirror)
	if err = errors.Join(err, otherErr); err != nil {
		return nil, err
	}
	for id, want := range theirs {
		if got := ours[id]; !bytes.Equal(want, got) {
			found = append(found, fmt.Sprintf("document %s is\n    %s, and its source is\n    %s", id, got, want))
		}
	}
	for id, got := range ours {
		if theirs[id] == nil {
			found = append(found, fmt.Sprintf("document %s is %s, and its source has no such document", id, got))
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return append(found, d.wrong...), nil
}

// judge pauses the writer until the mirror has followed, and compares the mirror with its source.
func (r *ring) judge(ctx context.Context) error {
	d := r.documents
	d.writing.Lock()
	defer d.writing.Unlock()
	followed := d.mark()
	err := r.until(ctx, "the mirror has followed, and every message is settled", func() bool {
		return followed() && r.stack.ServiceBus.Stats(r.stack.Route.Out()).Active == 0 && r.rec.Counts().Published == r.rec.Counts().Committed
	})
	found, readErr := d.differences(ctx)
	if len(found) > 0 {
		err = errors.Join(err, fmt.Errorf("the mirror differs from its source:\n%s", strings.Join(found, "\n")))
	}
	return errors.Join(err, readErr)
}
