package projectiontest_test

import (
	"fmt"
	"testing"

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

// newest is a push that keeps the newest entries.
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
			[]string{`c "all" grows without bound, with the aggregates of the whole source`, "most of it is in scores", "a sorted query with a limit", `projectiontest.MayGrow("c")`},
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
			[]string{`c "ann" grows without bound, with the aggregates that feed it`, `c "bob" grows`},
		},
		"an aggregate's list of events": {
			write(aggregate, func(e projection.Event) projection.Op {
				return projection.Set("events."+e.Position, e.Type)
			}),
			[]string{`c "o1" grows without bound, with the events of an aggregate`, `c "o2" grows`, `c "o3" grows`},
		},
		"a set of what there are few of": {
			write(aggregate, func(e projection.Event) projection.Op { return projection.AddToSet("types", e.Type) }), nil,
		},
		"counters by what there are few of": {
			write(all, func(e projection.Event) projection.Op {
				return projection.Inc("currency."+e.Document().Lookup("data", "currency").StringValue(), 1)
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
			for _, says := range c.grows {
				require.ErrorContains(t, err, says)
			}
			require.NoError(t, projectiontest.Problems(c.projection, history(), nil, projectiontest.MayGrow("c")))
			require.Error(t, projectiontest.Problems(c.projection, history(), nil, projectiontest.MayGrow("d")))
		})
	}
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
	require.Empty(t, l.said)
	require.Len(t, l.logged, 1)
	require.Contains(t, l.logged[0], `every aggregate writes to totals "all"`)

	// That all the given orders are of one customer says nothing.
	l = logging{}
	projectiontest.Check(&l, projection.Orders{}, []projection.Event{placed("o1", "ann"), placed("o2", "ann"), placed("o3", "ann")}, nil)
	require.Empty(t, l.said)
	require.Empty(t, l.logged)
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
	require.ErrorContains(t, err, "the documents depend on when the document of an update was looked up, as of event 2 of 4 (update of aggregate a1) on")
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
