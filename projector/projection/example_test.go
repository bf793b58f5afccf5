package projection_test

import (
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/memory"
	"github.com/sluice-cdc/sluice/projector/projection/projectiontest"
)

// Stock keeps {_id: <product>, left} of each product, and {_id: <warehouse>, movements} of each
// warehouse, which many products feed.
type Stock struct{}

var _ projection.Stored = Stock{}

// Name implements projection.Projection.
func (Stock) Name() string { return "stock" }

// Collections implements projection.Stored.
func (Stock) Collections() []projection.Collection {
	return []projection.Collection{
		{Name: "products", KeyedBy: projection.ByAggregate, Indexes: []projection.Index{{Keys: bson.D{{Key: "left", Value: 1}}}}},
		{Name: "warehouses", KeyedBy: "warehouse"},
	}
}

// Project implements projection.Projection.
func (Stock) Project(e projection.Event) ([]projection.Write, error) {
	if e.Operation != projection.OperationInsert {
		return nil, nil // of an event store, which only grows
	}
	moved, ok := e.Document().Lookup("moved").AsInt64OK()
	if !ok {
		return nil, projection.Permanent(errors.New("moved is no whole number"))
	}
	warehouse, _ := e.Document().Lookup("warehouse").StringValueOK()
	return []projection.Write{
		projection.Update("products", e.Aggregate, projection.Inc("left", moved)),
		projection.Update("warehouses", warehouse, projection.Inc("movements", 1)),
	}, nil
}

// project applies events to documents in memory, as a projector does to those of a database.
func project(p projection.Projection, store *memory.Store, events ...projection.Event) {
	for _, e := range events {
		writes, err := p.Project(e)
		if err != nil {
			fmt.Println(e.Aggregate, "is parked:", err)
			return
		}
		for _, w := range writes {
			if err := store.Apply(w); err != nil {
				fmt.Println(err)
			}
		}
	}
}

// show prints a document as relaxed Extended JSON.
func show(store *memory.Store, collection string, id any) {
	document, ok := store.Get(collection, id)
	if !ok {
		fmt.Println("there is no", id)
		return
	}
	text, err := bson.MarshalExtJSON(document, false, false)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(string(text))
}

// A projection that writes to several collections declares them. An event that it can never apply
// parks the event's aggregate, and no other one.
func ExampleStored() {
	var store memory.Store
	project(Stock{}, &store,
		projectiontest.Insert("tea", `{"warehouse": "north", "moved": 12}`),
		projectiontest.Insert("tea", `{"warehouse": "north", "moved": -5}`),
		projectiontest.Insert("coffee", `{"warehouse": "north", "moved": 3}`),
		projectiontest.Insert("cocoa", `{"warehouse": "north", "moved": "some"}`),
	)
	show(&store, "products", "tea")
	show(&store, "products", "coffee")
	show(&store, "warehouses", "north")
	// Output:
	// cocoa is parked: moved is no whole number
	// {"_id":"tea","left":7}
	// {"_id":"coffee","left":3}
	// {"_id":"north","movements":3}
}

// Visits keeps {_id: <page>, visits, last} of each page: one document for each aggregate.
type Visits struct{}

var _ projection.OneDocument = Visits{}

// Name implements projection.Projection.
func (Visits) Name() string { return "visits" }

// Collection implements projection.OneDocument.
func (Visits) Collection() string { return "visits" }

// Project implements projection.Projection.
func (Visits) Project(e projection.Event) ([]projection.Write, error) {
	who, _ := e.Document().Lookup("visitor").StringValueOK()
	return []projection.Write{projection.Update("visits", e.Aggregate, projection.Inc("visits", 1), projection.Set("last", who))}, nil
}

// A projection with one document for each aggregate has its guard in that document, and a batch of
// an aggregate's events costs one update.
func ExampleOneDocument() {
	var store memory.Store
	project(Visits{}, &store,
		projectiontest.Insert("/prices", `{"visitor": "ann"}`),
		projectiontest.Insert("/prices", `{"visitor": "bob"}`),
	)
	show(&store, "visits", "/prices")
	// Output: {"_id":"/prices","last":"bob","visits":2}
}

// A permanent error parks the aggregate of its event at once. Any other error is retried.
func ExamplePermanent() {
	err := fmt.Errorf("project an order: %w", projection.Permanent(errors.New("the currency is unknown")))
	fmt.Println(errors.Is(err, projection.ErrPermanent))
	fmt.Println(errors.Is(errors.New("the rates are not loaded yet"), projection.ErrPermanent))
	// Output:
	// true
	// false
}

// A key that comes from data may hold what a path of fields cannot.
func ExampleEscapeKey() {
	var store memory.Store
	version := "v1.2"
	if err := store.Apply(projection.Update("releases", "app", projection.Inc("downloads."+projection.EscapeKey(version), 1))); err != nil {
		fmt.Println(err)
	}
	show(&store, "releases", "app")
	fmt.Println(projection.UnescapeKey("v1%2E2"))
	// Output:
	// {"_id":"app","downloads":{"v1%2E2":1}}
	// v1.2
}

// A document that nothing points to any more is removed, and one that something still points to
// stays.
func ExampleDeleteIf() {
	var store memory.Store
	for _, w := range []projection.Write{
		projection.Update("customers", "ann", projection.Inc("orders", 1)),
		projection.Update("customers", "bob", projection.Inc("orders", 2)),
		projection.UpdateExisting("customers", "ann", projection.Inc("orders", -1)),
		projection.UpdateExisting("customers", "bob", projection.Inc("orders", -1)),
		projection.DeleteIf("customers", "ann", projection.Lte("orders", 0)),
		projection.DeleteIf("customers", "bob", projection.Lte("orders", 0)),
	} {
		if err := store.Apply(w); err != nil {
			fmt.Println(err)
		}
	}
	show(&store, "customers", "ann")
	show(&store, "customers", "bob")
	// Output:
	// there is no ann
	// {"_id":"bob","orders":1}
}

// A list of values that come and go.
func ExamplePull() {
	var store memory.Store
	for _, w := range []projection.Write{
		projection.Update("orders", 7, projection.AddToSet("tags", "gift", "urgent")),
		projection.Update("orders", 7, projection.AddToSet("tags", "gift")),
		projection.Update("orders", 7, projection.Pull("tags", "urgent")),
	} {
		if err := store.Apply(w); err != nil {
			fmt.Println(err)
		}
	}
	show(&store, "orders", 7)
	// Output: {"_id":7,"tags":["gift"]}
}

// A mirror of two fields, by the documents' own number instead of their _id.
func ExampleNewMirror() {
	mirror, err := projection.NewMirror(projection.MirrorOptions{Collection: "catalogue", Key: "number", Fields: []string{"number", "name"}})
	if err != nil {
		fmt.Println(err)
	}
	var store memory.Store
	project(mirror, &store, projectiontest.Insert("p1", `{"_id": "p1", "number": 17, "name": "tea", "cost": 3}`))
	show(&store, "catalogue", 17)

	_, err = projection.NewMirror(projection.MirrorOptions{Key: "number.", Fields: []string{"price.net"}})
	fmt.Println(err)
	// Output:
	// {"_id":17,"number":17,"name":"tea"}
	// the key "number." is not a path of fields
	// the field "price.net" is not the name of a top-level field
}

// A projector has those of its own besides the ones that come with it; PROJECTION chooses the one
// that it runs.
func ExampleRegistry() {
	registry := projection.Builtin()
	fmt.Println(registry.Register(Stock{}), registry.Names())
	fmt.Println(registry.Register(Stock{}))
	p, ok := registry.Lookup("stock")
	fmt.Println(p.Name(), ok)
	// Output:
	// <nil> [mirror orders stock timeline]
	// register projection "stock": the name is taken
	// stock true
}

// A projection that computes with the difference to the document before an update must not get one
// that was looked up later.
func ExampleEvent_LookedUp() {
	update := projectiontest.Update("p1", `{"_id": "p1", "left": 5}`, `{"_id": "p1", "left": 3}`)
	fmt.Println(update.LookedUp())
	update.PostImage = true // the producer has FULL_DOCUMENT=required
	fmt.Println(update.LookedUp())
	fmt.Println(update.Document().Lookup("left").AsInt64() - update.Before().Lookup("left").AsInt64())
	// Output:
	// true
	// false
	// -2
}

// Fields of the document are read by their paths. A missing field is empty or 0.
func ExampleEvent_Text() {
	e := projectiontest.Insert("order-1", `{"data": {"customerId": "ann", "totalCents": 700}}`)
	fmt.Println(e.Text("data.customerId"), e.Int("data.totalCents"))
	fmt.Printf("%q %d\n", e.Text("data.coupon"), e.Int("data.discountCents"))
	// Output:
	// ann 700
	// "" 0
}

// The second version of a projection writes collections of its own, so that it can be built beside
// the first one.
func ExampleVersion() {
	name, v, err := projection.ParseVersion("stock:2")
	fmt.Println(name, v, err)
	second, err := projection.Version(Stock{}, v)
	if err != nil {
		fmt.Println(err)
		return
	}
	collections, _ := projection.Collections(second)
	fmt.Println(second.Name(), projection.VersionOf(second), collections[0].Name, collections[1].Name)
	// Output:
	// stock 2 <nil>
	// stock_v2 2 products_v2 warehouses_v2
}
