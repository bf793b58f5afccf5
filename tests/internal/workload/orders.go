package workload

import (
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"
)

const (
	customers = 150
	// openOrders is how many orders are open at the same time; hotOrders of them belong to
	// wholesale customers, who add items during the whole run: these aggregates are never idle.
	openOrders = 60
	hotOrders  = 3
	// hotShare is the share of all events that belong to the hot orders.
	hotShare = 0.15
)

// Orders yields the events of a shop: orders of many customers, each from OrderPlaced to delivery
// or cancellation, interleaved as in a real shop. The same seed yields the same events. The
// sequence does not end.
func Orders(seed uint64) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		s := &shop{rand: rand.New(rand.NewPCG(seed, 0x510ce)), now: time.Date(2026, time.January, 5, 8, 0, 0, 0, time.UTC)}
		for {
			if !yield(s.next()) {
				return
			}
		}
	}
}

// shop is the generator's state.
type shop struct {
	rand   *rand.Rand
	now    time.Time
	orders int
	open   []*order
	hot    []*order
}

type order struct {
	id       string
	customer string
	version  int64
	stage    stage
	total    int64 // cents
	items    int
}

type stage int

const (
	filling stage = iota
	paid
	packed
	shipped
	closed
)

func (s *shop) next() Event {
	// A third of the events have the same time as the event before: only the version defines the
	// order.
	if s.rand.IntN(3) > 0 {
		s.now = s.now.Add(time.Duration(1+s.rand.IntN(4000)) * time.Millisecond)
	}
	if len(s.hot) < hotOrders {
		o := s.newOrder("wholesale")
		s.hot = append(s.hot, o)
		return s.event(o, "OrderPlaced")
	}
	if s.rand.Float64() < hotShare {
		return s.addItem(s.hot[s.rand.IntN(len(s.hot))])
	}
	if len(s.open) < openOrders {
		o := s.newOrder("customer")
		s.open = append(s.open, o)
		return s.event(o, "OrderPlaced")
	}
	i := s.rand.IntN(len(s.open))
	o := s.open[i]
	e := s.step(o)
	if o.stage == closed {
		s.open[i] = s.open[len(s.open)-1]
		s.open = s.open[:len(s.open)-1]
	}
	return e
}

// step moves an order one step further.
func (s *shop) step(o *order) Event {
	switch o.stage {
	case filling:
		switch n := s.rand.IntN(10); {
		case o.items == 0 || n < 4:
			return s.addItem(o)
		case n < 5:
			o.total -= o.total / int64(o.items)
			o.items--
			return s.event(o, "ItemRemoved")
		case n < 6:
			o.stage = closed
			return s.event(o, "OrderCancelled")
		}
		o.stage = paid
		return s.event(o, "OrderPaid")
	case paid:
		if s.rand.IntN(12) == 0 {
			o.stage = closed
			return s.event(o, "OrderRefunded")
		}
		o.stage = packed
		return s.event(o, "OrderPacked")
	case packed:
		o.stage = shipped
		return s.event(o, "OrderShipped")
	default:
		o.stage = closed
		return s.event(o, "OrderDelivered")
	}
}

func (s *shop) addItem(o *order) Event {
	o.items++
	o.total += int64(99 + s.rand.IntN(20_000))
	return s.event(o, "ItemAdded")
}

func (s *shop) newOrder(kind string) *order {
	s.orders++
	return &order{
		id:       fmt.Sprintf("order-%06d", s.orders),
		customer: fmt.Sprintf("%s-%03d", kind, 1+s.rand.IntN(customers)),
	}
}

func (s *shop) event(o *order, kind string) Event {
	o.version++
	data, err := json.Marshal(struct {
		CustomerID string `json:"customerId"`
		TotalCents int64  `json:"totalCents"`
		Items      int    `json:"items"`
		Currency   string `json:"currency"`
	}{o.customer, o.total, o.items, "EUR"})
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return Event{
		AggregateID: o.id,
		Version:     o.version,
		Type:        kind,
		OccurredAt:  s.now.Format(time.RFC3339Nano),
		Data:        data,
	}
}
