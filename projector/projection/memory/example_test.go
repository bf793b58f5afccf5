package memory_test

import (
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/memory"
)

// Writes leave the documents that MongoDB would leave, and what it would refuse is refused and
// changes nothing.
func ExampleStore() {
	var store memory.Store
	for _, w := range []projection.Write{
		projection.Update("orders", "o1", projection.Set("status", "placed"), projection.Inc("lines", 2)),
		projection.Update("orders", "o1", projection.Inc("status", 1)),
		projection.UpdateExisting("orders", "o2", projection.Inc("lines", 1)),
	} {
		if err := store.Apply(w); err != nil {
			fmt.Println(errors.Is(err, memory.ErrRefused))
		}
	}
	document, ok := store.Get("orders", "o1")
	fmt.Println(document, ok, store.Len())
	// Output:
	// true
	// {"_id":"o1","lines":{"$numberLong":"2"},"status":"placed"} true 1
}

// Each difference has its path, and its type if only the types differ.
func ExampleDiff() {
	want := bson.D{{Key: "_id", Value: "o1"}, {Key: "customer", Value: bson.D{{Key: "name", Value: "ann"}}}, {Key: "total", Value: int32(1)}, {Key: "tags", Value: bson.A{"a", "b"}}}
	got := bson.D{{Key: "total", Value: "1"}, {Key: "customer", Value: bson.D{{Key: "name", Value: "bob"}}}, {Key: "tags", Value: bson.A{"b", "a"}}, {Key: "_id", Value: "o1"}}
	for _, difference := range memory.Diff(want, got) {
		fmt.Println(difference)
	}
	// Output:
	// customer.name is "bob", expected "ann"
	// total is "1" (string), expected 1 (32-bit integer)
	// tags has the expected members in another order: it is ["b","a"], expected ["a","b"]
}

// Numbers of different types that are equal are one _id.
func ExampleKey() {
	one, _, _ := memory.Key(int32(7))
	other, _, _ := memory.Key(7.0)
	text, _, _ := memory.Key("7")
	fmt.Println(one == other, one == text)
	// Output: true false
}
