package main

import (
	"testing"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/projectiontest"
)

func TestCustomerTotals(t *testing.T) {
	projectiontest.Check(t, CustomerTotals{}, []projection.Event{
		projectiontest.Insert("order-1", `{"type": "OrderPlaced", "version": 1, "data": {"customerId": "ann", "totalCents": 0}}`),
		projectiontest.Insert("order-2", `{"type": "OrderPlaced", "version": 1, "data": {"customerId": "bob", "totalCents": 0}}`),
		projectiontest.Insert("order-3", `{"type": "OrderPlaced", "version": 1, "data": {"customerId": "ann", "totalCents": 0}}`),
		projectiontest.Insert("order-1", `{"type": "OrderPaid", "version": 2, "data": {"customerId": "ann", "totalCents": 700}}`),
		projectiontest.Insert("order-3", `{"type": "OrderPaid", "version": 2, "data": {"customerId": "ann", "totalCents": 500}}`),
		projectiontest.Insert("order-1", `{"type": "OrderRefunded", "version": 3, "data": {"customerId": "ann", "totalCents": 700}}`),
	}, projectiontest.Documents{"customer_totals": {
		`{"_id": "ann", "orders": 2, "paidCents": 500}`,
		`{"_id": "bob", "orders": 1}`,
	}})
	projectiontest.CheckPermanent(t, CustomerTotals{}, projectiontest.Insert("order-4", `{"type": "OrderPaid", "data": {"totalCents": 1}}`))
	projectiontest.CheckPermanent(t, CustomerTotals{}, projectiontest.Insert("order-5", `{"type": "OrderPaid", "data": {"customerId": "ann"}}`))
}
