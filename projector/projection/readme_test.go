package projection_test

import (
	"fmt"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/memory"
	"github.com/sluice-cdc/sluice/projector/projection/projectiontest"
)

type CustomerTotals struct{}

func (CustomerTotals) Name() string { return "customer_totals" }

func (CustomerTotals) Collections() []projection.Collection {
	return []projection.Collection{{Name: "customer_totals", KeyedBy: "data.customerId"}}
}

func (CustomerTotals) Project(e projection.Event) ([]projection.Write, error) {
	if e.Type != "OrderPaid" {
		return nil, nil
	}
	paid := projection.Inc("paidCents", e.Int("data.totalCents"))
	return []projection.Write{projection.Update("customer_totals", e.Text("data.customerId"), paid)}, nil
}

// A whole projection: the projector does the rest. A program calls projector.Main with it.
func Example() {
	events := []projection.Event{
		projectiontest.Insert("order-1", `{"type": "OrderPlaced", "data": {"customerId": "ann", "totalCents": 700}}`),
		projectiontest.Insert("order-1", `{"type": "OrderPaid", "data": {"customerId": "ann", "totalCents": 700}}`),
		projectiontest.Insert("order-2", `{"type": "OrderPaid", "data": {"customerId": "ann", "totalCents": 500}}`),
	}
	var store memory.Store
	for _, e := range events {
		writes, err := CustomerTotals{}.Project(e)
		if err != nil {
			fmt.Println(err)
		}
		for _, w := range writes {
			if err := store.Apply(w); err != nil {
				fmt.Println(err)
			}
		}
	}
	document, _ := store.Get("customer_totals", "ann")
	fmt.Println(document)
	// Output: {"_id":"ann","paidCents":{"$numberLong":"1200"}}
}
