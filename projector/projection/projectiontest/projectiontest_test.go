package projectiontest_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/projectiontest"
)

func placed(order, customer string) projection.Event {
	return projectiontest.Insert(order, fmt.Sprintf(`{"type": "OrderPlaced", "version": 1, "occurredAt": "2026-01-05T08:00:00Z",
		"data": {"customerId": %q, "totalCents": 0, "items": 0, "currency": "EUR"}}`, customer))
}

func later(order, customer, kind string, version, total int) projection.Event {
	return projectiontest.Insert(order, fmt.Sprintf(`{"type": %q, "version": %d, "occurredAt": "2026-01-05T09:00:00.25Z",
		"data": {"customerId": %q, "totalCents": %d, "items": 1, "currency": "EUR"}}`, kind, version, customer, total))
}

func TestOrders(t *testing.T) {
	projectiontest.Check(t, projection.Orders{}, []projection.Event{
		placed("o1", "ann"), placed("o2", "bob"), placed("o3", "ann"),
		later("o1", "ann", "ItemAdded", 2, 700), later("o1", "ann", "OrderPaid", 3, 700), later("o1", "ann", "OrderRefunded", 4, 700),
		later("o2", "bob", "OrderPaid", 2, 300), later("o2", "bob", "OrderPacked", 3, 300), later("o2", "bob", "OrderShipped", 4, 300),
		later("o2", "bob", "OrderDelivered", 5, 300),
		later("o3", "ann", "Gift-wrapped", 2, 0), later("o3", "ann", "OrderCancelled", 3, 0),
	}, projectiontest.Documents{
		"orders": {
			`{"_id": "o1", "customerId": "ann", "status": "refunded", "items": 1, "totalCents": 700, "currency": "EUR", "events": 4,
			  "placedAt": {"$date": "2026-01-05T08:00:00Z"}, "changedAt": {"$date": "2026-01-05T09:00:00.25Z"}}`,
			`{"_id": "o2", "customerId": "bob", "status": "delivered", "items": 1, "totalCents": 300, "currency": "EUR", "events": 5,
			  "placedAt": {"$date": "2026-01-05T08:00:00Z"}, "changedAt": {"$date": "2026-01-05T09:00:00.25Z"}}`,
			`{"_id": "o3", "customerId": "ann", "status": "cancelled", "items": 1, "totalCents": 0, "currency": "EUR", "events": 3,
			  "placedAt": {"$date": "2026-01-05T08:00:00Z"}, "changedAt": {"$date": "2026-01-05T09:00:00.25Z"}}`,
		},
		"customers": {
			`{"_id": "ann", "orders": 2, "open": 0, "paid": 1, "paidCents": 700, "refunded": 1, "refundedCents": 700, "cancelled": 1,
			  "firstOrderAt": {"$date": "2026-01-05T08:00:00Z"}, "lastOrderAt": {"$date": "2026-01-05T08:00:00Z"}}`,
			`{"_id": "bob", "orders": 1, "open": 0, "paid": 1, "paidCents": 300, "delivered": 1,
			  "firstOrderAt": {"$date": "2026-01-05T08:00:00Z"}, "lastOrderAt": {"$date": "2026-01-05T08:00:00Z"}}`,
		},
	})
	for name, data := range map[string]string{
		"no customer": `{"occurredAt": "2026-01-05T08:00:00Z", "data": {"totalCents": 1}}`,
		"no amount":   `{"occurredAt": "2026-01-05T08:00:00Z", "data": {"customerId": "c", "totalCents": "1"}}`,
		"no time":     `{"data": {"customerId": "c", "totalCents": 1}}`,
		"a bad time":  `{"occurredAt": "yesterday", "data": {"customerId": "c", "totalCents": 1}}`,
	} {
		t.Run(name, func(t *testing.T) {
			projectiontest.CheckPermanent(t, projection.Orders{}, projectiontest.Insert("o", data))
		})
	}
}

// code is a projection of one function.
type code func(projection.Event) ([]projection.Write, error)

func (code) Name() string                                             { return "bad" }
func (c code) Project(e projection.Event) ([]projection.Write, error) { return c(e) }

type oneDocument struct{ code }

func (oneDocument) Collection() string { return "one" }

// misread declares a wrong key of its documents.
type misread struct{ code }

func (misread) Collections() []projection.Collection {
	return []projection.Collection{{Name: "c", KeyedBy: "type"}}
}

func TestBadProjectionsAreFound(t *testing.T) {
	var calls atomic.Int64
	seen := map[string]bool{}
	for name, bad := range map[string]struct {
		projection projection.Projection
		want       []string
	}{
		"a clock": {
			code(func(e projection.Event) ([]projection.Write, error) {
				return []projection.Write{projection.Update("c", e.Aggregate, projection.Set("at", time.Now()))}, nil
			}), []string{"event 1 of 4 (insert OrderPlaced of aggregate o1), and 3 more: the same event gave other writes the second time", "first: update c \"o1\": $set at"},
		},
		"another key than it declares": {
			misread{code(func(e projection.Event) ([]projection.Write, error) {
				return []projection.Write{projection.Update("c", e.Aggregate, projection.Inc("n", 1))}, nil
			})}, []string{
				`event 1 of 4 (insert OrderPlaced of aggregate o1), and 3 more: c is declared as keyed by "type", which is "OrderPlaced" in the event, and the event writes to document "o1"`,
			},
		},
		"a collection that it does not declare": {
			misread{code(func(e projection.Event) ([]projection.Write, error) {
				return []projection.Write{projection.Update("other", e.Aggregate, projection.Inc("n", 1))}, nil
			})}, []string{
				"event 1 of 4 (insert OrderPlaced of aggregate o1), and 3 more: projection bad writes to collection other, which it does not declare",
				"Add it to the declared collections",
			},
		},
		"a counter": {
			code(func(e projection.Event) ([]projection.Write, error) {
				return []projection.Write{projection.Update("c", e.Aggregate, projection.Set("n", calls.Add(1)))}, nil
			}), []string{"event 1 of 4 (insert OrderPlaced of aggregate o1), and 3 more: the same event gave other writes"},
		},
		"a map's order": {
			code(func(e projection.Event) ([]projection.Write, error) {
				var list bson.A
				for key := range map[string]int{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6, "g": 7} {
					list = append(list, key)
				}
				return []projection.Write{projection.Update("c", e.Aggregate, projection.Set("list", list))}, nil
			}), []string{"the same event gave other writes"},
		},
		"a memory of its own in place of the guard": {
			code(func(e projection.Event) ([]projection.Write, error) {
				if seen[e.MessageID] {
					return nil, nil
				}
				if len(seen) > 3 {
					return nil, errors.New("full")
				}
				seen[e.MessageID] = true
				return []projection.Write{projection.Update("c", e.Aggregate, projection.Inc("n", 1))}, nil
			}), []string{"then:  no write"},
		},
		"an event that is changed": {
			code(func(e projection.Event) ([]projection.Write, error) {
				e.Body[5]++
				return nil, nil
			}), []string{"event 1 of 4 (insert OrderPlaced of aggregate o1), and 3 more: the projection changed the event's body"},
		},
		"the last writer wins across aggregates": {
			code(func(e projection.Event) ([]projection.Write, error) {
				return []projection.Write{projection.Update("shop", "all", projection.Set("latest", e.Aggregate))}, nil
			}), []string{"the documents depend on the order of events of different aggregates, which is not guaranteed", `shop "all": latest is "o1", expected "o2"`, "With the events in the order 2 4 1 3:"},
		},
		"a panic": {
			code(func(e projection.Event) ([]projection.Write, error) { panic("oh") }), []string{"event 1 of 4 (insert OrderPlaced of aggregate o1), and 3 more: the projection panicked: oh", "projectiontest_test.go:"},
		},
		"another's document": {
			oneDocument{func(e projection.Event) ([]projection.Write, error) {
				return []projection.Write{projection.Update("one", e.Aggregate+"x", projection.Inc("n", 1))}, nil
			}}, []string{"promised one document per aggregate in one, and writes to another"},
		},
		"the guard's field": {
			oneDocument{func(e projection.Event) ([]projection.Write, error) {
				return []projection.Write{projection.Update("one", e.Aggregate, projection.Set("_sluice.position", ""))}, nil
			}}, []string{`writes to the field "_sluice.position"`},
		},
		"writes that are no single update": {
			oneDocument{func(e projection.Event) ([]projection.Write, error) {
				return []projection.Write{
					projection.Update("one", e.Aggregate, projection.Set("a", bson.D{})), projection.Update("one", e.Aggregate, projection.Set("a.b", 1)),
				}, nil
			}}, []string{"cannot be expressed as one update"},
		},
		"a document that MongoDB does not store": {
			code(func(e projection.Event) ([]projection.Write, error) {
				return []projection.Write{projection.Update("c", customerOf(e), projection.Set("blob", strings.Repeat("x", 17<<20)))}, nil
			}),
			[]string{`c "ann": the given events make a document of 17825`, "most of it in blob; MongoDB stores at most 16777216"},
		},
		"an update of nothing": {
			code(func(e projection.Event) ([]projection.Write, error) {
				return []projection.Write{projection.Update("c", 1)}, nil
			}),
			[]string{"without an operator"},
		},
		"a write that the database refuses": {
			code(func(e projection.Event) ([]projection.Write, error) {
				return []projection.Write{projection.Update("c", 1, projection.Set("a", "x")), projection.Update("c", 1, projection.Inc("a", 1))}, nil
			}), []string{"event 1 of 4", "write to c 1: $inc a: the write is refused: the sum needs two numbers, not \"x\" and 1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			events := []projection.Event{placed("o1", "ann"), placed("o2", "bob"), later("o1", "ann", "OrderPaid", 2, 1), later("o2", "bob", "OrderPaid", 2, 1)}
			if name == "a memory of its own in place of the guard" {
				events = events[:1] // it is not even safe for concurrent use, which only the race detector would report
				seen = map[string]bool{}
			}
			err := projectiontest.Problems(bad.projection, events, nil)
			for _, want := range bad.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// recorder is a test that only writes down.
type recorder struct{ reported []string }

func (*recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.reported = append(r.reported, fmt.Sprintf(format, args...))
}

func TestDifferencesAreReported(t *testing.T) {
	events := []projection.Event{placed("o1", "ann")}
	var r recorder
	projectiontest.Check(&r, projection.Timeline{}, events, projectiontest.Documents{"timeline": {
		`{"_id": "o1", "events": 2, "types": {"OrderPlaced": 1}, "firstOccurredAt": "2026-01-05T08:00:00Z", "lastOccurredAt": "2026-01-05T08:00:00Z", "lastType": "OrderPlaced", "vip": true}`,
		`{"_id": "o2"}`,
	}})
	require.Equal(t, []string{"projection timeline:\n" +
		`timeline "o1": events is 1, expected 2` + "\n" +
		`timeline "o1": vip is missing, expected true` + "\n" +
		`timeline "o2": expected {"_id":"o2"}, but there is no such document`}, r.reported)

	r.reported = nil
	projectiontest.Check(&r, projection.Timeline{}, events, projectiontest.Documents{})
	require.Len(t, r.reported, 1)
	require.Contains(t, r.reported[0], `timeline: the document {"_id":"o1","events":1,`)

	r.reported = nil
	projectiontest.CheckPermanent(&r, projection.Timeline{}, events[0])
	require.Len(t, r.reported, 1)
	require.Contains(t, r.reported[0], `expected a permanent error, got update timeline "o1": $inc events 1`)
}

// A wrong cause is worse than none: a clock on a document that many aggregates feed makes it depend
// on their order, too, and the order is not what to fix.
func TestAClockIsNotReportedAsAnOrder(t *testing.T) {
	events := []projection.Event{placed("o1", "ann"), placed("o2", "ann"), later("o1", "ann", "OrderPaid", 2, 1)}
	err := projectiontest.Problems(code(func(e projection.Event) ([]projection.Write, error) {
		return []projection.Write{projection.Update("c", customerOf(e), projection.Set("at", time.Now()))}, nil
	}), events, nil)
	require.ErrorContains(t, err, "the same event gave other writes the second time")
	require.NotContains(t, err.Error(), "order of events")
	require.Equal(t, 1, strings.Count(err.Error(), "gave other writes"))
	reported := regexp.MustCompile(`first: (.*)\n  then:  (.*)`).FindStringSubmatch(err.Error())
	require.Len(t, reported, 3)
	require.NotEqual(t, reported[1], reported[2], "two readings within a millisecond look different, too")
}

func TestAKeyThatIsNotInTheEventIsReportedOnce(t *testing.T) {
	p := elsewhere{code(func(e projection.Event) ([]projection.Write, error) {
		return []projection.Write{projection.Update("c", customerOf(e), projection.Inc("n", 1))}, nil
	})}
	events := []projection.Event{placed("o1", "ann"), placed("o2", "bob"), placed("o3", "bob")}
	require.EqualError(t, projectiontest.Problems(p, events, nil), `event 1 of 3 (insert OrderPlaced of aggregate o1), and 2 more: `+
		`c is declared as keyed by "data.customer", which is not in the event, and the event writes to document "ann": `+
		`correct that key, or leave it out: verify then reads the whole source`)
}

// elsewhere declares that its documents are keyed by a field that does not exist.
type elsewhere struct{ code }

func (elsewhere) Collections() []projection.Collection {
	return []projection.Collection{{Name: "c", KeyedBy: "data.customer"}}
}

func TestAMalformedDocumentIsTheTestsMistake(t *testing.T) {
	require.Panics(t, func() { projectiontest.Insert("o", `{`) })
}
