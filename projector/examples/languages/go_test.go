package languages_test

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// CustomerTotals keeps {_id: <customerId>, orders, paidCents} for each customer of an event store
// of orders.
type CustomerTotals struct{}

// Name is also used for the positions collection, customer_totals_positions, so never change it.
func (CustomerTotals) Name() string { return "customer_totals" }

// Collections declares every collection that is written to. The index is for the customers who paid
// most: a sorted query reads them, and no document holds a ranking.
func (CustomerTotals) Collections() []projection.Collection {
	byPaid := projection.Index{Keys: bson.D{{Key: "paidCents", Value: -1}}}
	return []projection.Collection{{Name: "customer_totals", Indexes: []projection.Index{byPaid}, KeyedBy: "data.customerId"}}
}

// Project returns what one event writes. The events of many orders write to one customer, and no
// order between aggregates is guaranteed: Inc gives the same result in any order.
func (CustomerTotals) Project(e projection.Event) ([]projection.Write, error) {
	if e.Operation != projection.OperationInsert {
		return nil, nil // an event store only grows
	}
	customer, total := e.Text("data.customerId"), e.Int("data.totalCents")
	if _, ok := e.Document().Lookup("data", "totalCents").AsInt64OK(); customer == "" || !ok {
		return nil, projection.Permanent(errors.New("the event has no data.customerId or no data.totalCents"))
	}
	var op projection.Op
	switch e.Type {
	case "OrderPlaced":
		op = projection.Inc("orders", 1)
	case "OrderPaid":
		op = projection.Inc("paidCents", total)
	case "OrderRefunded":
		op = projection.Inc("paidCents", -total)
	default:
		return nil, nil
	}
	return []projection.Write{projection.Update("customer_totals", customer, op)}, nil
}
