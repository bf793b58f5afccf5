package sim

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer/store"
	mongodbstore "github.com/sluice-cdc/sluice/producer/store/mongodb"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/sim/internal/network"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

const (
	// witnessedStore is the CHECKPOINT_STORE of a run whose checkpoint is in MongoDB: the built-in
	// store between two witnesses.
	witnessedStore = "witnessed"
	checkpoints    = "sluice"
)

// storedRecord is an object of the store that holds a leased record.
type storedRecord struct {
	Tag    string          `json:"tag"`
	Lease  string          `json:"lease,omitempty"`
	Record json.RawMessage `json:"record,omitempty"`
}

// isRecord reports whether an object is a record with its lease.
func isRecord(name string) bool { return strings.HasSuffix(name, ".json") }

func parseRecord(data []byte) (r storedRecord) {
	_ = json.Unmarshal(data, &r) // the zero value is no record
	return r
}

// witnessStored records the writes of a record, in the order in which MongoDB does them. A step of
// the lease keeps the record's tag, and is not recorded. It refuses no write.
func (w *world) witnessStored(writing mongo.Writing) (code int32) {
	name, _ := writing.ID.(string)
	if writing.Collection != mongodbstore.Collection || !isRecord(name) || writing.Document == nil {
		return 0
	}
	var object struct {
		Data []byte `bson:"data"`
	}
	if err := bson.Unmarshal(writing.Document, &object); err != nil {
		w.Errorf("read what was written to the checkpoint store: %v", err)
		return 0
	}
	r := parseRecord(object.Data)
	stamp, ok := w.checkpoint.Load(r.Tag)
	if !ok || stamp.(*sent).number.Load() >= 0 {
		return 0
	}
	w.written(r.Record, r.Lease, stamp.(*sent))
	return 0
}

// senderStore is the store as one client sees it. It stamps records before they are sent, and
// learns which of them their writer knows to be written: by an answer, or because it read them.
type senderStore struct {
	*mongodbstore.Store
	checked store.Store // the same, with its requests for records recorded
	w       *world
	mine    *sync.Map // the tags of the records that it has sent
}

// storeOver returns the producer's option that opens the store over a link.
func (w *world) storeOver(link *network.Link) func(string) (store.Store, error) {
	return func(string) (store.Store, error) {
		s, err := mongodbstore.Open(mongo.URI("mongo:27017"), checkpoints, func(o *options.ClientOptions) { o.SetDialer(link) })
		return senderStore{s, w.recordedStore(s), w, &sync.Map{}}, err
	}
}

// Close closes the connections.
func (s senderStore) Close() error {
	return mongodb.Disconnect(context.Background(), s.Client(), time.Second)
}

func (s senderStore) known(tag string) {
	if stamp, ok := s.w.checkpoint.Load(tag); ok {
		if number := stamp.(*sent).number.Load(); number >= 0 {
			s.w.record.Answered(int(number))
		}
	}
}

func (s senderStore) stamp(name string, data []byte) (tag string) {
	if !isRecord(name) {
		return ""
	}
	tag = parseRecord(data).Tag
	s.mine.Store(tag, true)
	s.w.checkpoint.LoadOrStore(tag, s.w.stamp())
	return tag
}

// Get implements [store.Store].
func (s senderStore) Get(ctx context.Context, name string) (store.Object, error) {
	object, err := s.checked.Get(ctx, name)
	if tag := parseRecord(object.Data).Tag; err == nil && isRecord(name) {
		if _, sent := s.mine.Load(tag); sent {
			s.known(tag)
		}
	}
	return object, err
}

// Put implements [store.Store].
func (s senderStore) Put(ctx context.Context, name string, data []byte, tag store.Tag) (store.Tag, error) {
	record := s.stamp(name, data)
	next, err := s.checked.Put(ctx, name, data, tag)
	if err == nil {
		s.known(record)
	}
	return next, err
}

// Create implements [store.Store].
func (s senderStore) Create(ctx context.Context, name string, data []byte) (store.Tag, error) {
	s.stamp(name, data)
	return s.checked.Create(ctx, name, data)
}

// strangerInStore removes the lease from the record, and perhaps puts another one there.
func (w *world) strangerInStore(a *agenda, step plan.Step) {
	lease := ""
	if step.Takes {
		lease = uuid.NewString()
	}
	if !w.setLease(step.Stream, "", lease) {
		w.trace.add("the stranger could not")
		return
	}
	if step.Takes {
		w.later(a, step.For.Duration, func() { w.setLease(step.Stream, lease, "") })
	}
}

// setLease sets the lease of a stream's record, if it is the expected one or none is expected.
func (w *world) setLease(stream, expected, lease string) bool {
	ctx, cancel := context.WithTimeout(w.Context(), time.Second)
	defer cancel()
	stored := w.recordedStore(w.store)
	object, err := stored.Get(ctx, stream+".json")
	r := parseRecord(object.Data)
	if err != nil || (expected != "" && r.Lease != expected) {
		return false
	}
	r.Lease = lease
	data, err := json.Marshal(r)
	if err == nil {
		_, err = stored.Put(ctx, stream+".json", data, object.Tag)
	}
	return err == nil
}

// cutStores separates every producer from the checkpoint store for d.
func (w *world) cutStores(a *agenda, d time.Duration) {
	for _, s := range w.producers {
		if i := s.now; i != nil {
			i.store.Cut()
			w.later(a, d, i.store.Heal)
		}
	}
}
