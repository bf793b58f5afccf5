package producer_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// theFourthOf selects the event of an aggregate that Service Bus refuses.
func theFourthOf(aggregate string) func(servicebus.Accepted) bool {
	return func(a servicebus.Accepted) bool {
		return a.Properties[envelope.PropSubject] == aggregate && a.Properties[envelope.PropVersion] == int64(4)
	}
}

// refusals are the ways in which Service Bus refuses one message, whatever it is sent with.
var refusals = map[string]servicebus.Answer{
	"for good":                         {Outcome: servicebus.Rejected, Condition: "amqp:not-allowed"},
	"for an unlisted reason":           {Outcome: servicebus.Rejected, Condition: "com.contoso:full-moon"},
	"by ending the link":               {Detach: true, Condition: "amqp:decode-error"},
	"as too large, by ending the link": {Detach: true, Condition: "amqp:link:message-size-exceeded"},
}

// refused commits the events around the fourth of a0: ten of each of four aggregates, in batches of
// all that wait.
func refused(w *world.World, answer servicebus.Answer, park string) *world.Producer {
	a := startLeader(w, "a", func(c *producer.Config, _ *producer.Options) { c.BatchScope, c.OnRefused = "mixed", park })
	w.Bus.AnswerSendsOf(theFourthOf("a0"), answer)
	w.InsertMany(40, 4)
	return a
}

// keepComing commits events of other aggregates while a message is suspected: if none is accepted,
// the message is not the reason.
func keepComing(w *world.World, until func() bool) {
	w.Eventually("the message is found", func() bool {
		w.Insert("other")
		w.Pass(time.Second)
		return until()
	})
}

// G6: in a batch that Service Bus refuses, the one message that causes it is found; the stream ends
// with the name of its event and the reason. The other messages of the batch are published, and
// nothing behind it in its session.
func TestG6TheMessageThatIsRefusedIsFoundAndNamed(t *testing.T) {
	for name, answer := range refusals {
		subtest(t, name, world.Options{}, func(w *world.World) {
			a := refused(w, answer, "fail")
			keepComing(w, func() bool { return len(a.Done) > 0 })
			err := a.Failed()
			require.ErrorContains(w, err, "permanently refused by Service Bus")
			require.ErrorContains(w, err, `insert of aggregate "a0" at `)
			require.ErrorContains(w, err, answer.Condition)
			require.ErrorContains(w, err, "ON_REFUSED=park")
			require.Equal(w, upTo(3), arrived(w)["a0"])
			if name == "for good" {
				return // the verdict may come before the other events are read
			}
			for _, aggregate := range []string{"a1", "a2", "a3"} {
				require.Equal(w, upTo(10), arrived(w)[aggregate], aggregate)
			}
		})
	}
}

// arrived returns the versions of each aggregate's events in the order in which the broker accepted
// them, without the repeats that it recognised.
func arrived(w *world.World) map[string][]int64 {
	versions := map[string][]int64{}
	for _, m := range w.Took() {
		if !m.Duplicate {
			aggregate := m.Properties[envelope.PropSubject].(string)
			versions[aggregate] = append(versions[aggregate], m.Properties[envelope.PropVersion].(int64))
		}
	}
	return versions
}

// upTo returns the versions from 1 to n, except for the refused ones.
func upTo(n int, refused ...int64) (versions []int64) {
	for v := int64(1); v <= int64(n); v++ {
		if !slices.Contains(refused, v) {
			versions = append(versions, v)
		}
	}
	return versions
}

// record is the record of a refused message in Blob storage.
type record struct {
	Aggregate, MessageID, Reason, ContentType, Body, Position string
	Version, Size                                             int64
}

// G6: with ON_REFUSED=park the message and the reason are stored in Blob storage before the
// checkpoint moves past it, everything else is published in order, and a log record, the status and
// a metric report it.
func TestG6ARefusedMessageIsParkedWithItsReason(t *testing.T) {
	for name, answer := range refusals {
		subtest(t, name, world.Options{}, func(w *world.World) {
			a := refused(w, answer, "park")
			keepComing(w, func() bool { return strings.Contains(a.Log.Text(), "it is parked") })
			checkpointed(w, w.Total()-1)
			a.End()
			for aggregate, total := range w.Inserted {
				if aggregate == "a0" {
					require.Equal(w, upTo(10, 4), arrived(w)[aggregate])
				} else {
					require.Equal(w, upTo(total), arrived(w)[aggregate], aggregate)
				}
			}

			require.Len(w, blobNames(w, "claim-checks"), 2)
			require.Equal(w, []int64{4}, keptVersions(w))
			kept := keptRecords(w)[0]
			require.Equal(w, "a0", kept.Aggregate)
			require.Contains(w, kept.Reason, answer.Condition)
			require.Equal(w, "application/json", kept.ContentType)
			body := blobContent(w, "claim-checks", kept.Body)
			require.Contains(w, body, `"fullDocument"`)
			require.EqualValues(w, len(body), kept.Size)
		})
	}
}

// G6: while the container cannot be written, the checkpoint stays before the message, whichever
// replica leads.
func TestG6ARefusedMessageIsParkedOnlyWhenItIsKept(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		withoutClaims := throughStorage(func(r *http.Request, next policy.Transporter) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "/claim-checks/") {
				return failure(r, http.StatusForbidden, "AuthorizationFailure"), nil
			}
			return next.Do(r)
		})
		a := startLeader(w, "a", func(c *producer.Config, o *producer.Options) {
			parking(c, o)
			withoutClaims(c, o)
		})
		w.Bus.AnswerSendsOf(theFourthOf("a0"), refusals["for good"])
		w.InsertMany(40, 4)
		w.Eventually("the container is missed", func() bool { return strings.Contains(a.Log.Text(), "refused messages") })
		w.Eventually("the others are published", func() bool { return w.Bus.Stats(world.Topic).Accepted == 33 })
		w.Pass(10 * time.Second)
		published := w.Checkpoint().Published
		require.LessOrEqual(w, published, int64(3*4), "what is before the fourth of a0")
		a.Vanish()

		b := w.StartProducer("b", parking)
		checkpointed(w, w.Total()-1)
		require.Len(w, blobNames(w, "claim-checks"), 2)
		b.End()
	})
}

// G6: a message is not parked while nothing else is accepted: an entity that refuses everything
// would empty the stream into Blob storage.
func TestG6NothingIsParkedWhileNothingIsAccepted(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := startLeader(w, "a", parking)
		w.Bus.AnswerSendsOf(func(servicebus.Accepted) bool { return true }, refusals["for good"])
		w.InsertMany(40, 4)
		require.ErrorContains(w, a.Failed(), "nothing else is accepted either")
		require.Zero(w, w.Checkpoint().Published)
		require.Empty(w, blobNames(w, "claim-checks"))
	})
}

// G1: a link that is detached repeatedly, whatever is sent on it, is replaced, and no message is
// blamed.
func TestG1ALinkThatIsDetachedOftenBlamesNoMessage(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		sendsAgain(w, 40, refusals["by ending the link"])
	})
}

// G1: with several streams, a link that is detached because of a message's size is replaced like
// any other.
func TestG1AStreamOfSeveralReplacesItsLink(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		one, two := w.ProducerConfig(), w.ProducerConfig()
		two.Collection, two.Stream = "other", "shop.other"
		one.Streams, two.Streams = []string{"one", "two"}, []string{"one", "two"}
		a := w.StartStreams("a", []producer.Config{one, two})
		w.Leads("a")
		w.InsertMany(10, 2)
		w.Published()
		w.Bus.AnswerSends(1, servicebus.Answer{Detach: true, Condition: "amqp:link:message-size-exceeded"})
		w.InsertMany(10, 2)
		detached := time.Now()
		w.Published()
		require.Less(w, time.Since(detached), 10*time.Second)
		require.EqualValues(w, 1, w.Checkpoint().Epoch)
		require.NotContains(w, a.Log.Text(), "the stream has failed")
		a.End()
	})
}
