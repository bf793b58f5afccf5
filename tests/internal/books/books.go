// Package books computes what the read model of the projection orders must contain. It folds the
// events of the source collection into orders and customers, without any code of the services.
//
// Events may be added in any order: an order's state is that of its highest version, and a
// customer's totals are sums.
package books

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/internal/workload"
)

// Entry is one event of the source collection.
type Entry struct {
	Order      string    `bson:"aggregateId"`
	Version    int64     `bson:"version"`
	Type       string    `bson:"type"`
	OccurredAt time.Time `bson:"-"`
	Stamp      string    `bson:"occurredAt"`
	Data       struct {
		Customer string `bson:"customerId"`
		Total    int64  `bson:"totalCents"`
		Items    int64  `bson:"items"`
		Currency string `bson:"currency"`
	} `bson:"data"`
}

// Books are the orders and customers of the entries added. The zero value is empty and ready to
// use.
type Books struct {
	ids       []string // of the orders, by their first entry
	orders    map[string]*order
	customers map[string]bson.M
}

type order struct {
	events                 int64
	first, latest, decided Entry // by version; decided is the latest that sets a status
}

var statuses = map[string]string{
	"OrderPlaced": "placed", "OrderPaid": "paid", "OrderPacked": "packed", "OrderShipped": "shipped",
	"OrderDelivered": "delivered", "OrderCancelled": "cancelled", "OrderRefunded": "refunded",
}

// Add adds one event, once.
func (b *Books) Add(e Entry) error {
	at, err := time.Parse(time.RFC3339Nano, e.Stamp)
	if err != nil {
		return fmt.Errorf("read event %d of %s: %w", e.Version, e.Order, err)
	}
	e.OccurredAt = at
	if b.orders == nil {
		b.orders, b.customers = map[string]*order{}, map[string]bson.M{}
	}
	o := b.orders[e.Order]
	if o == nil {
		o = &order{first: e}
		b.orders[e.Order] = o
		b.ids = append(b.ids, e.Order)
	}
	o.events++
	if e.Version < o.first.Version {
		o.first = e
	}
	if e.Version > o.latest.Version {
		o.latest = e
	}
	if statuses[e.Type] != "" && e.Version > o.decided.Version {
		o.decided = e
	}
	b.enter(e)
	return nil
}

// enter adds an event to its customer's totals.
func (b *Books) enter(e Entry) {
	changes := map[string]int64{}
	switch e.Type {
	case "OrderPlaced":
		changes["orders"], changes["open"] = 1, 1
	case "OrderPaid":
		changes["paid"], changes["paidCents"] = 1, e.Data.Total
	case "OrderDelivered":
		changes["delivered"], changes["open"] = 1, -1
	case "OrderCancelled":
		changes["cancelled"], changes["open"] = 1, -1
	case "OrderRefunded":
		changes["refunded"], changes["refundedCents"], changes["open"] = 1, e.Data.Total, -1
	default:
		return
	}
	c := b.customers[e.Data.Customer]
	if c == nil {
		c = bson.M{"_id": e.Data.Customer}
		b.customers[e.Data.Customer] = c
	}
	for field, by := range changes {
		sum, _ := c[field].(int64)
		c[field] = sum + by
	}
	if e.Type != "OrderPlaced" {
		return
	}
	at := bson.NewDateTimeFromTime(e.OccurredAt)
	if first, ok := c["firstOrderAt"].(bson.DateTime); !ok || at < first {
		c["firstOrderAt"] = at
	}
	if last, ok := c["lastOrderAt"].(bson.DateTime); !ok || at > last {
		c["lastOrderAt"] = at
	}
}

func (o *order) document() bson.M {
	d := bson.M{
		"_id": o.latest.Order, "customerId": o.latest.Data.Customer, "items": o.latest.Data.Items, "totalCents": o.latest.Data.Total,
		"currency": o.latest.Data.Currency, "events": o.events,
		"placedAt": bson.NewDateTimeFromTime(o.first.OccurredAt), "changedAt": bson.NewDateTimeFromTime(o.latest.OccurredAt),
	}
	if status := statuses[o.decided.Type]; status != "" {
		d["status"] = status
	}
	return d
}

// Read adds every event of a collection.
func (b *Books) Read(ctx context.Context, source *mongo.Collection) error {
	return workload.Each(ctx, source, func(raw bson.Raw) error {
		var e Entry
		if err := bson.Unmarshal(raw, &e); err != nil {
			return fmt.Errorf("decode event %s: %w", raw.Lookup("_id"), err)
		}
		return b.Add(e)
	})
}

// Compare compares the collections of a read model with the books, field by field. Aggregates are
// the orders; a customer that differs is a mismatch as well. applied is the number of events that
// the orders of the read model count.
func (b *Books) Compare(ctx context.Context, orders, customers *mongo.Collection) (c history.Comparison, applied int64, err error) {
	c.Aggregates = len(b.orders)
	expected := map[string]bson.M{}
	for id, o := range b.orders {
		expected[id] = o.document()
	}
	differ := func(kind, id string, want bson.M, differences []string) {
		c.Mismatches++
		if want == nil {
			c.Unexpected++
		}
		if id == "" {
			id = `""`
		}
		c.Differences = append(c.Differences, kind+" "+id+": "+strings.Join(differences, "; "))
	}
	err = against(ctx, orders, expected, func(id string, want, got bson.M) {
		wanted, _ := want["events"].(int64)
		counted, _ := got["events"].(int64)
		applied += counted
		c.Lost += max(0, wanted-counted)
		c.Doubled += max(0, counted-wanted)
		if differences := compare(want, got); len(differences) > 0 {
			differ("order", id, want, differences)
		} else {
			c.Right++
		}
	})
	if err != nil {
		return c, applied, err
	}
	err = against(ctx, customers, b.customers, func(id string, want, got bson.M) {
		if differences := compare(want, got); len(differences) > 0 {
			differ("customer", id, want, differences)
		}
	})
	return c, applied, err
}

// against calls judge for every document that exists or is expected; nil stands for a missing one.
func against(ctx context.Context, collection *mongo.Collection, expected map[string]bson.M, judge func(id string, want, got bson.M)) error {
	seen := map[string]bool{}
	err := workload.Each(ctx, collection, func(raw bson.Raw) error {
		var got bson.M
		if err := bson.Unmarshal(raw, &got); err != nil {
			return fmt.Errorf("decode document %s: %w", raw.Lookup("_id"), err)
		}
		id := fmt.Sprint(got["_id"])
		seen[id] = true
		judge(id, expected[id], got)
		return nil
	})
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(expected)) {
		if !seen[id] {
			judge(id, expected[id], nil)
		}
	}
	return nil
}

// compare returns the differences, with the fields in alphabetical order.
func compare(want, got bson.M) (differences []string) {
	switch {
	case want == nil:
		return []string{"should not be there"}
	case got == nil:
		return []string{"is missing"}
	}
	fields := maps.Clone(want)
	maps.Copy(fields, got)
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if w, g := want[field], got[field]; !reflect.DeepEqual(w, g) {
			is, expected := fmt.Sprint(g), fmt.Sprint(w)
			if is == expected {
				is, expected = fmt.Sprintf("%v (%T)", g, g), fmt.Sprintf("%v (%T)", w, w)
			}
			differences = append(differences, fmt.Sprintf("%s is %s, expected %s", field, is, expected))
		}
	}
	return differences
}
