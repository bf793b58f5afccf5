package projectiontest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// shop returns an order's event with identifiers of every kind.
func shop() projection.Event {
	return Update("order-1", nil, bson.D{
		{Key: "_id", Value: bson.ObjectID{1}},
		{Key: "orderId", Value: "order-1"},
		{Key: "version", Value: int32(2)},
		{Key: "type", Value: "OrderPaid"},
		{Key: "status", Value: "paid"},
		{Key: "total", Value: 700},
		{Key: "data", Value: bson.D{
			{Key: "customerId", Value: "ann"},
			{Key: "shop_id", Value: int64(7)},
			{Key: "paymentId", Value: "3f2504e0-4f89-11d3-9a0c-0305e82c3301"},
			{Key: "session", Value: bson.Binary{Subtype: 4, Data: make([]byte, 16)}},
			{Key: "skuIds", Value: bson.A{"17", "a"}},
			{Key: "paid", Value: true},
		}},
	})
}

func TestEventsAreRepeatedOfTheSameAggregate(t *testing.T) {
	given := shop()
	e := variation{n: 3}.events([]projection.Event{given})[0]
	require.Equal(t, "order-1", e.Aggregate)
	require.EqualValues(t, 2+3*2, e.Version)
	want := fields(given.Document())
	want[0].Value = bson.ObjectID{1, 11: 3} // it is another event
	want[2].Value = int64(8)
	require.Equal(t, want, fields(e.Document()))
	require.Equal(t, want[0].Value, e.Key().Lookup("_id").ObjectID(), "the key goes with it")
}

func TestEventsAreRepeatedOfOtherAggregates(t *testing.T) {
	given := shop()
	e := variation{n: 3, aggregates: true}.events([]projection.Event{given})[0]
	require.Equal(t, "order-1~3", e.Aggregate)
	require.EqualValues(t, 2, e.Version)
	want := fields(given.Document())
	want[0].Value = bson.ObjectID{1, 11: 3}
	want[1].Value = "order-1~3"
	require.Equal(t, want, fields(e.Document()), "the customer is the same")
}

func TestEventsAreRepeatedOfOtherEverything(t *testing.T) {
	given := shop()
	e := variation{n: 3, aggregates: true, identifiers: true}.events([]projection.Event{given})[0]
	require.Equal(t, "OrderPaid", e.Type)
	session := make([]byte, 16)
	session[15] = 3
	require.Equal(t, bson.D{
		{Key: "_id", Value: bson.ObjectID{1, 11: 3}},
		{Key: "orderId", Value: "order-1~3"},
		{Key: "version", Value: int32(2)},
		{Key: "type", Value: "OrderPaid"},
		{Key: "status", Value: "paid"},
		{Key: "total", Value: int32(700)},
		{Key: "data", Value: bson.D{
			{Key: "customerId", Value: "ann~3"},
			{Key: "shop_id", Value: int64(3_000_016)},
			{Key: "paymentId", Value: "3f2504e0-4f89-11d3-9a0c-0305e82c3302"}, // still a UUID
			{Key: "session", Value: bson.Binary{Subtype: 4, Data: session}},
			{Key: "skuIds", Value: bson.A{"3000026", "a~3"}},
			{Key: "paid", Value: true},
		}},
	}, fields(e.Document()))
}

func TestEventsAreRepeatedWithOtherValuesOfOneField(t *testing.T) {
	given := shop()
	e := variation{n: 3, field: "data.skuIds"}.events([]projection.Event{given})[0]
	want := fields(given.Document())
	want[0].Value = bson.ObjectID{1, 11: 3}
	want[2].Value = int64(8)
	want[6].Value.(bson.D)[4].Value = bson.A{"3000026", "a~3"}
	require.Equal(t, want, fields(e.Document()))
	require.Equal(t, []string{
		"data.customerId", "data.paymentId", "data.session", "data.shop_id", "data.skuIds", "status", "total",
	}, variable([]projection.Event{given}, nil), "neither the event's type nor the aggregate's name")
}

func TestEveryValueHasOthersOfItsKind(t *testing.T) {
	price, err := bson.ParseDecimal128("19.90")
	require.NoError(t, err)
	priceier, err := bson.ParseDecimal128("20019.96")
	require.NoError(t, err)
	day := time.Date(2026, 2, 27, 1, 2, 3, 0, time.UTC)
	for _, c := range []struct{ value, other any }{
		{"ann", "ann~2"},
		{"17", "2000023"},
		{"2026-02-27", "2026-03-01"},
		{"2026-02-27T01:02:03.5+01:00", "2026-03-01T01:02:03.5+01:00"},
		{int32(1), int64(2_000_007)},
		{int64(1), int64(2_000_007)},
		{1.5, 2_000_007.5},
		{price, priceier},
		{bson.NewDateTimeFromTime(day), bson.NewDateTimeFromTime(day.AddDate(0, 0, 2))},
	} {
		require.True(t, canVary(c.value))
		require.Equal(t, c.other, other(c.value, 2))
	}
	for _, same := range []any{true, nil, bson.Binary{Data: []byte("short")}, bson.Regex{Pattern: "a"}} {
		require.False(t, canVary(same))
		require.Equal(t, same, other(same, 2))
	}
}
