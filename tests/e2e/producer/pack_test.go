package producer_test

import (
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/witness"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// packing has a producer pack the events of three sessions.
func packing(c *producer.Config, _ *producer.Options) {
	c.Pack, c.SessionKey = "auto", envelope.Buckets(3)
}

// backlog commits events while the broker is busy, so that they wait, then lets them be sent.
func backlog(w *world.World, n int) {
	w.Helper()
	end := w.Bus.Inject(servicebus.Faults{Send: servicebus.Fault{Busy: 1}})
	w.InsertMany(n, 20)
	w.Pass(20 * time.Second)
	end()
}

// confirmPacks confirms that readers know packs, and waits until the leader has read that.
func confirmPacks(w *world.World) {
	w.Helper()
	operate(w, "packs", "on", "--readers-know", "--rules-checked").succeeds()
	w.Pass(15 * time.Second)
}

// G1, G2: a leader sends packs of what waits once it is confirmed that readers know them, and not
// before; every event is in one of them, in order.
func TestG1G2PacksAreSentOnceReadersKnowThem(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := startLeader(w, "a", packing)
		backlog(w, 100)
		checkpointed(w, 100)
		require.Equal(w, 100, w.Bus.Stats(world.Topic).Accepted, "one message for each event")
		require.Contains(w, a.Log.Text(), "producer packs on --readers-know")

		aggregates := func(c *producer.Config, _ *producer.Options) { c.Pack = "auto" }
		require.Regexp(w, `ok +packs +PACK=auto has no effect until an operator confirms`, operateWith(w, aggregates, "doctor").Out)
		operate(w, "packs", "on").fails("Deploy a version that knows packs to all subscribers first")
		confirmPacks(w)
		backlog(w, 300)
		checkpointed(w, 400)
		require.Less(w, w.Bus.Stats(world.Topic).Accepted, 150)
		require.Regexp(w, `ok +packs +up to 20 events of a session that wait are one message, since \S+\. Only events of one aggregate`,
			operateWith(w, aggregates, "doctor").Out)
		require.NotContains(w, operate(w, "doctor").Out, "packs")

		accepted := w.Bus.Stats(world.Topic).Accepted
		w.Insert("alone")
		checkpointed(w, 401)
		require.Equal(w, accepted+1, w.Bus.Stats(world.Topic).Accepted, "no event waits for a pack to fill")

		operate(w, "packs", "off").succeeds()
		w.Pass(15 * time.Second)
		backlog(w, 100)
		checkpointed(w, 501)
		require.Equal(w, accepted+101, w.Bus.Stats(world.Topic).Accepted)
		w.Judge()
		a.End()
	})
}

// G6: a rule of a subscription would drop packs without a trace, so packs are refused while there
// is one.
func TestG6ARuleOfASubscriptionForbidsPacks(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		w.Administration = w.Administered()
		a := startLeader(w, "a", packing)
		operate(w, "packs", "on", "--readers-know").succeeds()
		require.Contains(w, operate(w, "packs", "status").Out, "on since")
		client, err := w.ProducerConfig().ServiceBus.Administer(nil, "", w.Administration)
		require.NoError(w, err)
		_, err = client.CreateRule(w.Context(), world.Topic, world.Subscription, &admin.CreateRuleOptions{
			Name: new("inserts"), Filter: &admin.SQLFilter{Expression: "operation = 'insert'"},
		})
		require.NoError(w, err)
		operate(w, "packs", "on", "--readers-know").fails("rule inserts of subscription " + world.Subscription)
		a.End()
	})
}

// G1, G6: of a pack that Service Bus refuses because of one event, that event alone is parked. The
// others are sent in messages of their own, in order.
func TestG1G6OneRefusedEventOfAPackIsParkedAlone(t *testing.T) {
	for name, answer := range refusals {
		subtest(t, name, world.Options{}, func(w *world.World) {
			a := startLeader(w, "a", func(c *producer.Config, o *producer.Options) {
				packing(c, o)
				c.BatchScope, c.OnRefused, c.PackEvents = "mixed", "park", 4 // several packs of a session in a batch
			})
			confirmPacks(w)
			of := theFourthOf("a0")
			w.Bus.AnswerSendsOf(func(m servicebus.Accepted) bool { return slices.ContainsFunc(witness.Events(m), of) }, answer)
			w.InsertMany(40, 4)
			keepComing(w, func() bool { return w.Checkpoint().Published >= 40 })
			reached := map[string]int64{}
			for _, m := range w.Took() {
				aggregate, version := m.Properties[envelope.PropSubject].(string), m.Properties[envelope.PropVersion].(int64)
				if !m.Duplicate && version > reached[aggregate] { // events of a pack with an unknown outcome may come again
					if reached[aggregate]++; aggregate == "a0" && reached[aggregate] == 4 {
						reached[aggregate]++
					}
					require.Equal(w, reached[aggregate], version, aggregate)
				}
			}
			for _, aggregate := range []string{"a0", "a1", "a2", "a3"} {
				require.EqualValues(w, 10, reached[aggregate], aggregate)
			}
			a.End()
		})
	}
}

// G1, G2: packs that Service Bus refuses for their size, and no event, are sent in smaller ones and
// at last as events, in order, and the next packs are smaller from the start.
func TestG1G2PacksThatAreRefusedForTheirSizeAreSplit(t *testing.T) {
	for _, accepted := range []int{1, 4} {
		world.InVirtualTime(t, world.Options{}, func(w *world.World) {
			a := startLeader(w, "a", packing)
			confirmPacks(w)
			w.Bus.AnswerSendsOf(func(m servicebus.Accepted) bool { return len(witness.Events(m)) > accepted }, refusals["as too large, by ending the link"])
			for n := range 6 { // of 20, 10 and 5 events they are refused
				backlog(w, 100)
				checkpointed(w, 100*(n+1))
			}
			require.Equal(w, accepted > 1, w.Bus.Stats(world.Topic).Accepted < 550, w.Bus.Stats(world.Topic))
			w.Judge()
			a.End()
		})
	}
}
