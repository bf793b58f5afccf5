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
	// OrdersCollection and CustomersCollection are where [Orders] writes.
	OrdersCollection    = "orders"
	CustomersCollection = "customers"
)

// Orders is the sample: what a shop's event store says of its orders, and of its customers, whose totals the orders of
// many aggregates feed. The aggregate is the order; its events carry data {customerId, totalCents, items, currency} as
// it stands after the event.
//
//	orders:    {_id: <aggregate id>, customerId, status, items, totalCents, currency, events, placedAt, changedAt}
//	customers: {_id: <customerId>, orders, open, paid, delivered, cancelled, refunded, paidCents, refundedCents,
//	            firstOrderAt, lastOrderAt}
//
// A document that many aggregates feed is written in any order between them, so it is written by operators that do not
// mind: counts, sums, a smallest and a largest. Two orders of one customer at once are two transactions that meet in its
// document; one of them is repeated.
//
// An event of an unknown type counts and changes no status. One without a customer, an amount or a time can never be
// applied.
type Orders struct{}

var _ Stored = Orders{}

// Name implements [Projection].
func (Orders) Name() string { return ordersName }

// Collections implements [Stored]: the orders of a customer are found by an index.
func (Orders) Collections() []Collection {
	byCustomer := Index{Keys: bson.D{{Key: "customerId", Value: 1}, {Key: "placedAt", Value: -1}}}
	return []Collection{
		{Name: OrdersCollection, Indexes: []Index{byCustomer}, KeyedBy: ByAggregate},
		{Name: CustomersCollection, KeyedBy: "data.customerId"},
	}
}

// step is what a type of event does to an order and to its customer.
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
