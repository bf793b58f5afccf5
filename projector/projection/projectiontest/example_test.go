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
