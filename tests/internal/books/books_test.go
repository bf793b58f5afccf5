package books

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func entry(order string, version int64, kind, customer string, total int64) Entry {
	e := Entry{Order: order, Version: version, Type: kind, Stamp: "2026-01-05T08:00:0" + string(rune('0'+version)) + "Z"}
	e.Data.Customer, e.Data.Total, e.Data.Currency = customer, total, "EUR"
	return e
}

// The books do not depend on the order in which events are added.
func TestBooksDoNotDependOnTheOrderOfArrival(t *testing.T) {
	life := []Entry{
		entry("o1", 1, "OrderPlaced", "c", 0), entry("o1", 2, "ItemAdded", "c", 700), entry("o1", 3, "OrderPaid", "c", 700),
		entry("o1", 4, "OrderRefunded", "c", 700), entry("o2", 1, "OrderPlaced", "c", 0),
	}
	var forward, backward Books
	for i := range life {
		require.NoError(t, forward.Add(life[i]))
		require.NoError(t, backward.Add(life[len(life)-1-i]))
	}
	require.Equal(t, forward.orders["o1"].document(), backward.orders["o1"].document())
	require.Equal(t, forward.customers, backward.customers)
	require.Equal(t, "refunded", forward.orders["o1"].document()["status"])
	at := bson.DateTime(1767600001000) // 2026-01-05T08:00:01Z
	require.Equal(t, map[string]bson.M{"c": {
		"_id": "c", "orders": int64(2), "open": int64(1), "paid": int64(1), "paidCents": int64(700), "refunded": int64(1),
		"refundedCents": int64(700), "firstOrderAt": at, "lastOrderAt": at,
	}}, forward.customers)
}

func TestEveryDifferenceIsReported(t *testing.T) {
	want := bson.M{"_id": "c", "orders": int64(2), "open": int64(1)}
	require.Empty(t, compare(want, bson.M{"_id": "c", "orders": int64(2), "open": int64(1)}))
	require.Equal(t, []string{"open is <nil>, expected 1", "orders is 3, expected 2", "vip is true, expected <nil>"},
		compare(want, bson.M{"_id": "c", "orders": int64(3), "vip": true}))
	require.Equal(t, []string{"open is 1 (string), expected 1 (int64)"}, compare(want, bson.M{"_id": "c", "orders": int64(2), "open": "1"}))
	require.Equal(t, []string{"is missing"}, compare(want, nil))
	require.Equal(t, []string{"should not be there"}, compare(nil, want))
}
