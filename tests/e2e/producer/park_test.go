package producer_test

import (
	"encoding/json"
	"net/http"
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
	a := w.StartProducer("a", func(c *producer.Config, _ *producer.Options) { c.BatchScope, c.OnRefused = "mixed", park })
	w.Leads("a")
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
		t.Run(name, func(t *testing.T) {
			world.InVirtualTime(t, world.Options{}, func(w *world.World) {
				a := refused(w, answer, "fail")
				var err error
				keepComing(w, func() bool {
					select {
					case err = <-a.Done:
						return true
					default:
						return false
					}
				})
				require.ErrorContains(w, err, "permanently refused by Service Bus")
				require.ErrorContains(w, err, `insert of aggregate "a0" at `)
				require.ErrorContains(w, err, answer.Condition)
				require.ErrorContains(w, err, "ON_REFUSED=park")
				reached := map[string]int64{}
				for _, m := range w.Took() {
					reached[m.SessionID] = max(reached[m.SessionID], m.Properties[envelope.PropVersion].(int64))
				}
				require.EqualValues(w, 3, reached["a0"])
				if name == "for good" {
					return // the verdict may come before the other events are read
				}
				for _, aggregate := range []string{"a1", "a2", "a3"} {
					require.EqualValues(w, 10, reached[aggregate], aggregate)
				}
			})
		})
	}
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
		t.Run(name, func(t *testing.T) {
			world.InVirtualTime(t, world.Options{}, func(w *world.World) {
				a := refused(w, answer, "park")
				keepComing(w, func() bool { return strings.Contains(a.Log.Text(), "it is parked") })
				w.Eventually("everything else is published", func() bool {
					return w.Checkpoint().Published == int64(w.Total()-1)
				})
				a.End()
				reached := map[string]int64{}
				for _, m := range w.Took() {
					version := m.Properties[envelope.PropVersion].(int64)
					if m.Duplicate {
						continue
					}
					if reached[m.SessionID]++; m.SessionID == "a0" && version > 4 {
						require.Equal(w, reached[m.SessionID]+1, version)
					} else {
						require.Equal(w, reached[m.SessionID], version)
					}
				}
				require.EqualValues(w, 9, reached["a0"], "all but the fourth")

				var kept record
				var names []string
				for _, blob := range blobNamesIn(w, "claim-checks") {
					names = append(names, blob)
					if strings.HasSuffix(blob, ".json") {
						require.NoError(w, json.Unmarshal([]byte(contentIn(w, "claim-checks", blob)), &kept))
					}
				}
				require.Len(w, names, 2)
				require.Equal(w, "a0", kept.Aggregate)
				require.EqualValues(w, 4, kept.Version)
				require.Contains(w, kept.Reason, answer.Condition)
				require.Equal(w, "application/json", kept.ContentType)
				body := contentIn(w, "claim-checks", kept.Body)
				require.Contains(w, body, `"fullDocument"`)
				require.EqualValues(w, len(body), kept.Size)
			})
		})
	}
}

// G6: while the container cannot be written, the checkpoint stays before the message, whichever
// replica leads.
func TestG6ARefusedMessageIsParkedOnlyWhenItIsKept(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := w.StartProducer("a", func(c *producer.Config, o *producer.Options) {
			c.OnRefused = "park"
			o.Blob.Transport = withoutClaims{o.Blob.Transport}
		})
		w.Leads("a")
		w.Bus.AnswerSendsOf(theFourthOf("a0"), refusals["for good"])
		w.InsertMany(40, 4)
		w.Eventually("the container is missed", func() bool { return strings.Contains(a.Log.Text(), "refused messages") })
		w.Eventually("the others are published", func() bool { return w.Bus.Stats(world.Topic).Accepted == 33 })
		w.Pass(10 * time.Second)
		published := w.Checkpoint().Published
		require.LessOrEqual(w, published, int64(3*4), "what is before the fourth of a0")
		a.Vanish()

		b := w.StartProducer("b", func(c *producer.Config, _ *producer.Options) { c.OnRefused = "park" })
		w.Eventually("everything else is published", func() bool { return w.Checkpoint().Published == int64(w.Total()-1) })
		require.Len(w, blobNamesIn(w, "claim-checks"), 2)
		b.End()
	})
}

// withoutClaims is a transport to storage on which the container of claim checks cannot be written.
type withoutClaims struct{ next policy.Transporter }

func (s withoutClaims) Do(r *http.Request) (*http.Response, error) {
	if strings.Contains(r.URL.Path, "/claim-checks/") {
		return &http.Response{
			Status: "403 Forbidden", StatusCode: http.StatusForbidden, Request: r, Body: http.NoBody,
			Header: http.Header{"X-Ms-Error-Code": {"AuthorizationFailure"}},
		}, nil
	}
	return s.next.Do(r)
}

// G6: a message is not parked while nothing else is accepted: an entity that refuses everything
// would empty the stream into Blob storage.
func TestG6NothingIsParkedWhileNothingIsTaken(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := w.StartProducer("a", func(c *producer.Config, _ *producer.Options) { c.OnRefused = "park" })
		w.Leads("a")
		w.Bus.AnswerSendsOf(func(servicebus.Accepted) bool { return true }, servicebus.Answer{Outcome: servicebus.Rejected, Condition: "amqp:not-allowed"})
		w.InsertMany(40, 4)
		require.ErrorContains(w, a.Failed(), "nothing else is accepted either")
		require.Zero(w, w.Checkpoint().Published)
		require.Empty(w, blobNamesIn(w, "claim-checks"))
	})
}

// G1: a link that is detached repeatedly, whatever is sent on it, is replaced, and no message is
// blamed.
func TestG1ALinkThatIsDetachedOftenBlamesNoMessage(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := w.StartProducer("a", lanes)
		w.Leads("a")
		w.InsertMany(10, 4)
		w.Published()
		w.Bus.AnswerSends(40, servicebus.Answer{Detach: true, Condition: "amqp:decode-error"})
		w.InsertMany(40, 4)
		w.Published()
		w.Eventually("all is acknowledged", func() bool { return w.Checkpoint().Published == 50 })
		require.EqualValues(w, 1, w.Checkpoint().Epoch)
		a.End()
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
