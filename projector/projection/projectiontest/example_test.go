package projectiontest_test

import (
	"errors"
	"fmt"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/projectiontest"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Balances keeps {_id: <account>, balance, movements} per account of an event store.
type Balances struct{}

var _ projection.OneDocument = Balances{}

// Name implements projection.Projection.
func (Balances) Name() string { return "balances" }

// Collection implements projection.OneDocument.
func (Balances) Collection() string { return "balances" }

// Project implements projection.Projection.
func (Balances) Project(e projection.Event) ([]projection.Write, error) {
	if e.Operation != envelope.Insert {
		return nil, nil // an event store only grows
	}
	amount, ok := e.Document().Lookup("amount").AsInt64OK()
	if !ok {
		return nil, projection.Permanent(errors.New("the event has no amount that is a whole number"))
	}
	if e.Type == "Withdrawn" {
		amount = -amount
	}
	return []projection.Write{projection.Update("balances", e.Aggregate, projection.Inc("balance", amount), projection.Inc("movements", 1))}, nil
}

// A projection is checked with events and the documents that they are to make.
func Example() {
	events := []projection.Event{
		projectiontest.Insert("ann", `{"type": "Deposited", "amount": 50}`),
		projectiontest.Insert("bob", `{"type": "Deposited", "amount": 10}`),
		projectiontest.Insert("ann", `{"type": "Withdrawn", "amount": 20}`),
	}
	fmt.Println(projectiontest.Problems(Balances{}, events, projectiontest.Documents{"balances": {
		`{"_id": "ann", "balance": 30, "movements": 2}`,
		`{"_id": "bob", "balance": 10, "movements": 1}`,
	}}))
	fmt.Println(projectiontest.Problems(Balances{}, events[:1], projectiontest.Documents{"balances": {
		`{"_id": "ann", "balance": 5, "movements": 1}`,
	}}))
	// Output:
	// <nil>
	// balances "ann": balance is 50, expected 5
}

// Statuses counts the orders of each customer by status.
type Statuses struct{}

// Name implements projection.Projection.
func (Statuses) Name() string { return "statuses" }

// Collections implements projection.Stored.
func (Statuses) Collections() []projection.Collection {
	return []projection.Collection{{Name: "statuses"}}
}

// Project implements projection.Projection.
func (Statuses) Project(e projection.Event) ([]projection.Write, error) {
	status, _ := e.Document().Lookup("status").StringValueOK()
	return []projection.Write{projection.Update("statuses", "all", projection.Inc("by."+projection.EscapeKey(status), 1))}, nil
}

// A document that has an entry for each value of a field grows without bound, unless the field has
// few values.
func ExampleFew() {
	events := []projection.Event{projectiontest.Insert("o1", `{"status": "placed"}`), projectiontest.Insert("o2", `{"status": "paid"}`)}
	want := projectiontest.Documents{"statuses": {`{"_id": "all", "by": {"placed": 1, "paid": 1}}`}}
	fmt.Println(projectiontest.Problems(Statuses{}, events, want) != nil)
	fmt.Println(projectiontest.Problems(Statuses{}, events, want, projectiontest.Few("status")))
	// Output:
	// true
	// <nil>
}

// Levels adds what each update of a product changes, by the document before it and the one right
// after it.
type Levels struct{}

// Name implements projection.Projection.
func (Levels) Name() string { return "levels" }

// Collections implements projection.Stored.
func (Levels) Collections() []projection.Collection { return []projection.Collection{{Name: "levels"}} }

// NeedsPostImages implements projection.PostImages.
func (Levels) NeedsPostImages() bool { return true }

// Project implements projection.Projection.
func (Levels) Project(e projection.Event) ([]projection.Write, error) {
	before, _ := e.Before().Lookup("left").AsInt64OK()
	after, _ := e.Document().Lookup("left").AsInt64OK()
	return []projection.Write{projection.Update("levels", "all", projection.Inc("left", after-before))}, nil
}

// A projection that computes with differences declares that it needs the document right after each
// update.
func ExamplePostImages() {
	fmt.Println(projectiontest.Problems(Levels{}, []projection.Event{
		projectiontest.Insert("tea", `{"_id": "tea", "left": 5}`),
		projectiontest.Update("tea", `{"_id": "tea", "left": 5}`, `{"_id": "tea", "left": 3}`),
		projectiontest.Insert("coffee", `{"_id": "coffee", "left": 1}`),
	}, projectiontest.Documents{"levels": {`{"_id": "all", "left": 4}`}}, projectiontest.PostImages()))
	// Output: <nil>
}
