package projection

import (
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

const (
	ordersName = "orders"
	// OrdersCollection and CustomersCollection are the collections of [Orders].
	OrdersCollection    = "orders"
	CustomersCollection = "customers"
)

// Orders is a sample for a shop's event store. It keeps a document for each order, which is the
// aggregate, and one for each customer, which the events of many orders write to. Each event
// carries data {customerId, totalCents, items, currency}, the values after the event.
//
//	orders:    {_id: <aggregate id>, customerId, status, items, totalCents, currency, events,
//	            placedAt, changedAt}
//	customers: {_id: <customerId>, orders, open, paid, delivered, cancelled, refunded,
//	            paidCents, refundedCents, firstOrderAt, lastOrderAt}
//
// No order between aggregates is guaranteed, so the customers are written with operators that give
// the same result in any order: counts, sums, a minimum and a maximum. Two orders of one customer
// at the same time are two transactions that conflict in its document, and one of them is retried.
//
// An event of an unknown type is counted, and changes no status. An event without a customer, an
// amount or a time is a permanent error.
type Orders struct{}

var _ Stored = Orders{}

// Name implements [Projection].
func (Orders) Name() string { return ordersName }

// Collections implements [Stored]. An index finds the orders of a customer.
func (Orders) Collections() []Collection {
	byCustomer := Index{Keys: bson.D{{Key: "customerId", Value: 1}, {Key: "placedAt", Value: -1}}}
	return []Collection{
		{Name: OrdersCollection, Indexes: []Index{byCustomer}, KeyedBy: ByAggregate},
		{Name: CustomersCollection, KeyedBy: "data.customerId"},
	}
}

// step is what an event of one type does to an order and to its customer.
type step struct {
	status string
	count  string // the customer's counter
	open   int64  // change of the number of open orders
	amount string // the customer's sum that the total is added to
}

var steps = map[string]step{
	"OrderPlaced":    {status: "placed", count: "orders", open: 1},
	"OrderPaid":      {status: "paid", count: "paid", amount: "paidCents"},
	"OrderPacked":    {status: "packed"},
	"OrderShipped":   {status: "shipped"},
	"OrderDelivered": {status: "delivered", count: "delivered", open: -1},
	"OrderCancelled": {status: "cancelled", count: "cancelled", open: -1},
	"OrderRefunded":  {status: "refunded", count: "refunded", open: -1, amount: "refundedCents"},
}

// Project implements [Projection].
func (Orders) Project(e Event) ([]Write, error) {
	if e.Operation != envelope.Insert {
		return nil, nil
	}
	event, err := readOrderEvent(e.Document())
	if err != nil {
		return nil, Permanent(err)
	}
	step := steps[e.Type]
	order := []Op{
		Inc("events", 1),
		Set("customerId", event.customer),
		Set("items", event.items),
		Set("totalCents", event.total),
		Set("currency", event.currency),
		SetOnInsert("placedAt", event.at),
		Set("changedAt", event.at),
	}
	if step.status != "" {
		order = append(order, Set("status", step.status))
	}
	writes := []Write{Update(OrdersCollection, e.Aggregate, order...)}

	var customer []Op
	if step.count != "" {
		customer = append(customer, Inc(step.count, 1))
	}
	if step.open != 0 {
		customer = append(customer, Inc("open", step.open))
	}
	if step.open > 0 {
		customer = append(customer, Min("firstOrderAt", event.at), Max("lastOrderAt", event.at))
	}
	if step.amount != "" {
		customer = append(customer, Inc(step.amount, event.total))
	}
	if len(customer) > 0 {
		writes = append(writes, Update(CustomersCollection, event.customer, customer...))
	}
	return writes, nil
}

type orderEvent struct {
	customer, currency string
	total, items       int64
	at                 time.Time
}

func readOrderEvent(document bson.Raw) (e orderEvent, err error) {
	if document == nil {
		return e, errors.New("the insert carries no document")
	}
	var hasCustomer, hasTotal bool
	e.customer, hasCustomer = document.Lookup("data", "customerId").StringValueOK()
	e.total, hasTotal = document.Lookup("data", "totalCents").AsInt64OK()
	e.items, _ = document.Lookup("data", "items").AsInt64OK()
	e.currency, _ = document.Lookup("data", "currency").StringValueOK()
	if !hasCustomer || e.customer == "" {
		return e, errors.New("the event has no data.customerId")
	}
	if !hasTotal {
		return e, errors.New("the event has no data.totalCents that is a whole number")
	}
	e.at, err = timeOf(document.Lookup("occurredAt"))
	return e, err
}

// timeOf reads a date, or text of RFC 3339.
func timeOf(v bson.RawValue) (time.Time, error) {
	if ms, ok := v.DateTimeOK(); ok {
		return time.UnixMilli(ms).UTC(), nil
	}
	text, ok := v.StringValueOK()
	if !ok {
		return time.Time{}, errors.New("the event has no occurredAt")
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("read occurredAt: %w", err)
	}
	return at.UTC(), nil
}
