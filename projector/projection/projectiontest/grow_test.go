package projectiontest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/projectiontest"
)

func history() []projection.Event {
	return []projection.Event{
		placed("o1", "ann"), placed("o2", "bob"), placed("o3", "ann"), later("o1", "ann", "OrderPaid", 2, 700), later("o2", "bob", "OrderPaid", 2, 300),
	}
}

func customerOf(e projection.Event) string {
	return e.Document().Lookup("data", "customerId").StringValue()
}

// newest returns a push that keeps the newest entries.
func newest(field string, keep int, entry any) projection.Op {
	return projection.Op{Kind: projection.OpPush, Field: field, Value: bson.D{
		{Key: "$each", Value: bson.A{entry}}, {Key: "$slice", Value: -keep},
	}}
}

func TestDocumentsThatGrowWithoutBoundAreFound(t *testing.T) {
	write := func(id func(projection.Event) any, op func(projection.Event) projection.Op) code {
		return func(e projection.Event) ([]projection.Write, error) {
			return []projection.Write{projection.Update("c", id(e), op(e))}, nil
		}
	}
	all := func(projection.Event) any { return "all" }
	aggregate := func(e projection.Event) any { return e.Aggregate }
	customer := func(e projection.Event) any { return customerOf(e) }
	for name, c := range map[string]struct {
		projection projection.Projection
		grows      []string // empty: it does not
	}{
		"a ranking of customers in one document": {
			write(all, func(e projection.Event) projection.Op {
				return projection.Inc("scores."+projection.EscapeKey(customerOf(e)), 1)
			}),
			[]string{`c "all" grows without bound, with the values of data.customerId`, "most of it is in scores", "a sorted query with a limit", `projectiontest.MayGrow("c")`},
		},
		"a list of aggregates in one document": {
			write(all, func(e projection.Event) projection.Op {
				return projection.Set("orders."+projection.EscapeKey(e.Aggregate), true)
			}),
			[]string{`c "all" grows without bound, with the aggregates that feed it`},
		},
		"a customer's list of orders": {
			write(customer, func(e projection.Event) projection.Op {
				return projection.Set("orders."+projection.EscapeKey(e.Aggregate), e.Version)
			}),
			[]string{`c "ann" and 1 more document grow without bound, with the aggregates that feed it: the first one has`},
		},
		"an aggregate's list of events": {
			write(aggregate, func(e projection.Event) projection.Op {
				return projection.Set("events."+e.Position, e.Type)
			}),
			[]string{`c "o1" and 2 more documents grow without bound, with the events of an aggregate: the first one has`},
		},
		"a set of what there are few of": {
			write(aggregate, func(e projection.Event) projection.Op { return projection.AddToSet("types", e.Type) }), nil,
		},
		"counters by what only the projection's author knows to be few": {
			write(all, func(e projection.Event) projection.Op {
				return projection.Inc("currency."+e.Document().Lookup("data", "currency").StringValue(), 1)
			}),
			[]string{`c "all" grows without bound, with the values of data.currency`, `projectiontest.Few("data.currency")`},
		},
		"counters by what the projection refuses to take more of": {
			code(func(e projection.Event) ([]projection.Write, error) {
				currency := e.Document().Lookup("data", "currency").StringValue()
				if currency != "EUR" {
					return nil, projection.Permanent(errors.New("the currency is missing"))
				}
				return []projection.Write{projection.Update("c", "all", projection.Inc("currency."+currency, 1))}, nil
			}), nil,
		},
		"the newest hundred": {
			write(aggregate, func(e projection.Event) projection.Op { return newest("events", 100, e.Position) }), nil,
		},
		"a text that gets a little longer": {
			write(aggregate, func(e projection.Event) projection.Op {
				return projection.Max("versions", fmt.Sprintf("%04d times", e.Version))
			}), nil,
		},
		"orders":   {projection.Orders{}, nil},
		"timeline": {projection.Timeline{}, nil},
		"mirror":   {projection.Mirror{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			err := projectiontest.Problems(c.projection, history(), nil)
			if c.grows == nil {
				require.NoError(t, err)
				return
			}
			for _, want := range c.grows {
				require.ErrorContains(t, err, want)
			}
			require.NoError(t, projectiontest.Problems(c.projection, history(), nil, projectiontest.MayGrow("c")))
			require.Error(t, projectiontest.Problems(c.projection, history(), nil, projectiontest.MayGrow("d")))
		})
	}
}

// Any field may hold what there are many of, whatever it is called and whatever its type.
func TestRankingsAreFoundByEveryKindOfField(t *testing.T) {
	oid, err := bson.ObjectIDFromHex("65a000000000000000000001")
	require.NoError(t, err)
	decimal, err := bson.ParseDecimal128("19.90")
	require.NoError(t, err)
	data := func(customer string, n int) bson.D {
		return bson.D{
			{Key: "customer", Value: customer},
			{Key: "quantity", Value: n},
			{Key: "weight", Value: 1.5},
			{Key: "price", Value: decimal},
			{Key: "buyer", Value: oid},
			{Key: "due", Value: time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)},
			{Key: "day", Value: "2026-01-05"},
			{Key: "lines", Value: bson.A{bson.D{{Key: "article", Value: "pen"}, {Key: "unit", Value: bson.D{{Key: "of", Value: "box"}}}}}},
			{Key: "tags", Value: bson.A{"new", "red"}},
			{Key: "gift", Value: true},
		}
	}
	events := []projection.Event{
		projectiontest.Insert("o1", bson.D{{Key: "kind", Value: "OrderPlaced"}, {Key: "version", Value: 1}, {Key: "data", Value: data("ann", 1)}}),
		projectiontest.Insert("o2", bson.D{{Key: "kind", Value: "OrderPlaced"}, {Key: "version", Value: 1}, {Key: "data", Value: data("bob", 2)}}),
	}
	for i := range events {
		events[i].Type = "OrderPlaced" // EVENT_TYPE_PATH=kind
	}
	for path, many := range map[string]bool{
		"data.customer": true, "data.quantity": true, "data.weight": true, "data.price": true, "data.buyer": true, "data.due": true, "data.day": true,
		"data.lines.0.article": true, "data.lines.0.unit.of": true, "data.tags.1": true,
		"data.gift": false, "kind": false,
	} {
		t.Run(path, func(t *testing.T) {
			ranking := code(func(e projection.Event) ([]projection.Write, error) {
				value := e.Document().Lookup(strings.Split(path, ".")...)
				return []projection.Write{projection.Update("shop", "all", projection.Inc("by."+projection.EscapeKey(value.String()), 1))}, nil
			})
			err := projectiontest.Problems(ranking, events, nil)
			if !many {
				require.NoError(t, err)
				return
			}
			field := strings.NewReplacer(".0", "", ".1", "").Replace(path)
			require.ErrorContains(t, err, `shop "all" grows without bound, with the values of `+field+":")
			require.NoError(t, projectiontest.Problems(ranking, events, nil, projectiontest.Few(field)))
			require.Error(t, projectiontest.Problems(ranking, events, nil, projectiontest.Few("data")))
		})
	}
}

func TestADocumentThatGrowsWithSeveralFieldsNamesThem(t *testing.T) {
	err := projectiontest.Problems(code(func(e projection.Event) ([]projection.Write, error) {
		currency := e.Document().Lookup("data", "currency").StringValue()
		return []projection.Write{projection.Update("c", "all", projection.Inc("scores."+projection.EscapeKey(customerOf(e)), 1), projection.Inc("in."+currency, 1))}, nil
	}), history(), nil)
	require.ErrorContains(t, err, "with the values of data.currency and of data.customerId:")
}

// A set of what many aggregates have differs in its order, and grows: both are reported.
func TestASetThatGrowsIsNotOnlyOutOfOrder(t *testing.T) {
	err := projectiontest.Problems(code(func(e projection.Event) ([]projection.Write, error) {
		return []projection.Write{projection.Update("c", "all", projection.AddToSet("customers", customerOf(e)))}, nil
	}), history(), nil)
	require.ErrorContains(t, err, "AddToSet keeps its members in the order they came")
	require.ErrorContains(t, err, `c "all" grows without bound, with the values of data.customerId`)
}

// logging is a recorder that logs, too.
type logging struct {
	recorder
	logged []string
}

func (l *logging) Logf(format string, args ...any) {
	l.logged = append(l.logged, fmt.Sprintf(format, args...))
}

func TestADocumentThatEveryAggregateWritesToIsLogged(t *testing.T) {
	hot := code(func(e projection.Event) ([]projection.Write, error) {
		return []projection.Write{
			projection.Update("totals", "all", projection.Inc("events", 1)), projection.Update("customers", customerOf(e), projection.Inc("events", 1)),
		}, nil
	})
	var l logging
	projectiontest.Check(&l, hot, history(), nil)
	require.Empty(t, l.reported)
	require.Len(t, l.logged, 1)
	require.Contains(t, l.logged[0], `every aggregate writes to totals "all"`)

	// That all the given orders are of one customer proves nothing.
	l = logging{}
	projectiontest.Check(&l, projection.Orders{}, []projection.Event{placed("o1", "ann"), placed("o2", "ann"), placed("o3", "ann")}, nil)
	require.Empty(t, l.reported)
	require.Empty(t, l.logged)

	// The field that names their owner may have any name.
	l = logging{}
	by := code(func(e projection.Event) ([]projection.Write, error) {
		return []projection.Write{projection.Update("c", e.Document().Lookup("customer").StringValue(), projection.Inc("n", 1))}, nil
	})
	sale := func(order string) projection.Event { return projectiontest.Insert(order, `{"customer": "ann"}`) }
	projectiontest.Check(&l, by, []projection.Event{sale("o1"), sale("o2")}, nil)
	require.Empty(t, l.reported)
	require.Empty(t, l.logged)
	projectiontest.Check(&l, by, []projection.Event{sale("o1"), sale("o2")}, nil, projectiontest.Few("customer"))
	require.Len(t, l.logged, 1, "if there are few customers, many aggregates are of each")
}

func account(n int) string { return fmt.Sprintf(`{"_id": "a1", "balance": %d}`, n) }

// Three updates of a document, by 10, 30 and 2.
func updates() []projection.Event {
	return []projection.Event{
		projectiontest.Insert("a1", account(0)),
		projectiontest.Update("a1", account(0), account(10)), projectiontest.Update("a1", account(10), account(40)),
		projectiontest.Update("a1", account(40), account(42)),
	}
}

func balance(document bson.Raw) int64 {
	n, _ := document.Lookup("balance").AsInt64OK()
	return n
}

func TestDocumentsThatWereLookedUpLateAreTried(t *testing.T) {
	differences := code(func(e projection.Event) ([]projection.Write, error) {
		return []projection.Write{projection.Update("c", e.Aggregate, projection.Inc("balance", balance(e.Document())-balance(e.Before())))}, nil
	})
	want := projectiontest.Documents{"c": {`{"_id": "a1", "balance": 42}`}}
	err := projectiontest.Problems(differences, updates(), want)
	require.ErrorContains(t, err, "the documents depend on when the document of an update was looked up, from event 2 of 4 (update of aggregate a1) on")
	require.ErrorContains(t, err, `c "a1": balance is 74, expected 42`)
	require.NoError(t, projectiontest.Problems(differences, updates(), want, projectiontest.PostImages()))
	require.NoError(t, projectiontest.Problems(differences, updates()[:2], nil), "one update has nothing to be late for")

	whole := code(func(e projection.Event) ([]projection.Write, error) {
		if e.Document() == nil {
			return nil, nil // its delete follows
		}
		return []projection.Write{projection.Update("c", e.Aggregate, projection.Set("balance", balance(e.Document())))}, nil
	})
	require.NoError(t, projectiontest.Problems(whole, updates(), want))

	gone := append(updates(), projectiontest.Delete("a1", `{"_id": "a1"}`, account(42)))
	require.NoError(t, projectiontest.Problems(projection.Mirror{}, gone, projectiontest.Documents{}))
	needs := code(func(e projection.Event) ([]projection.Write, error) {
		switch {
		case e.Operation == projection.OperationDelete:
			return []projection.Write{projection.Delete("c", e.Aggregate)}, nil
		case e.Document() == nil:
			return nil, projection.Permanent(fmt.Errorf("the %s carries no document", e.Operation))
		}
		return []projection.Write{projection.Replace("c", e.Aggregate, e.Document())}, nil
	})
	err = projectiontest.Problems(needs, gone, projectiontest.Documents{})
	require.ErrorContains(t, err, "event 4 of 5 (update of aggregate a1): the update carries no document")
}
