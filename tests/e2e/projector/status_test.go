package projector_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

func TestStatusOfAProjection(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		empty := exits(w, 0, w.OperateProjector(nil, "status"))
		require.Contains(w, empty.Out, "newest applied  nothing is applied yet")
		require.Contains(w, empty.Out, "waiting         0 sessions with messages")

		drained := exits(w, 0, w.OperateProjector(nil, "status", "--drained"))
		require.Equal(w, "changes/projector is empty, its dead-letter queue too, and no aggregate of timeline is parked\n", drained.Out)
		w.FailMongo(1, 13, "aggregate") // a count
		unknown := w.OperateProjector(nil, "status", "--drained")
		require.Equal(w, 1, unknown.Code, "what is not known is not empty")
		require.Contains(w, unknown.Out, "unknown: it could not be counted")

		p := w.StartProjector(nil)
		publish(w, event("a", 1, "T"), event("a", 2, "T"))
		bad := event("b", 3, "T")
		bad.Body = bson.Raw(documentChange("b", 3, "insert").Body) // no document
		publish(w, bad)
		publish(w, event("b", 4, "T"))
		w.Eventually("b is parked", func() bool { return w.Bus.Stats(world.SubscriptionPath).DeadLettered == 2 })
		w.Completed(2)
		p.MustEnd()
		publish(w, event("c", 5, "T"))
		publish(w, event("d", 6, "T"))

		var status struct {
			Projection, Database, Entity string
			Parked                       int64
			Newest                       string           `json:"newest_position"`
			Aggregate                    string           `json:"newest_aggregate"`
			Waiting                      int64            `json:"waiting_sessions"`
			Dead                         map[string]int64 `json:"dead_lettered"`
		}
		got := exits(w, 0, w.OperateProjector(nil, "status", "--json"))
		require.NoError(w, json.Unmarshal([]byte(got.Out), &status))
		require.Equal(w, "timeline", status.Projection)
		require.Equal(w, world.ReadModel, status.Database)
		require.Equal(w, "changes/projector", status.Entity)
		require.EqualValues(w, 1, status.Parked)
		require.Equal(w, event("a", 2, "T").Position, status.Newest)
		require.Equal(w, "a", status.Aggregate)
		require.EqualValues(w, 2, status.Waiting)
		require.Equal(w, map[string]int64{"ProjectionFailed": 1, "AggregateParked": 1}, status.Dead)
		require.Regexp(w, `dead-lettered +1 AggregateParked, 1 ProjectionFailed`, w.OperateProjector(nil, "status").Out)

		type watched struct {
			Level, Msg, Service string
			Watched             struct {
				Parked      *int64
				Waiting     *int64 `json:"waiting_sessions"`
				DeadLetters *int64 `json:"dead_letters"`
			}
		}
		began := time.Now()
		logged := exits(w, 0, w.OperateProjector(nil, "status", "--log"))
		require.GreaterOrEqual(w, time.Since(began), 20*time.Second, "a container that ends at once may be gone before its log is collected")
		var record watched
		require.NoError(w, json.Unmarshal([]byte(logged.Out), &record), "one record: %s", logged.Out)
		require.Equal(w, []string{"INFO", "watched", "projector"}, []string{record.Level, record.Msg, record.Service})
		require.Equal(w, []int64{1, 2, 2}, []int64{*record.Watched.Parked, *record.Watched.Waiting, *record.Watched.DeadLetters})

		left := exits(w, 1, w.OperateProjector(nil, "status", "--drained"))
		require.Empty(w, left.Err, "it has logged the reason")
		require.Contains(w, left.Out, "2 sessions with messages. To go on: let the projectors work them off\n"+
			"2 dead letters. To go on: projector parked replay --all, or inspect and remove them\n"+
			"1 parked aggregate. To go on: projector parked replay --all, or projector parked drop\n")
		own := w.OperateProjector(func(_ *projector.Config, o *projector.Options) { o.Program = "totals" }, "status", "--drained")
		require.Contains(w, own.Out, "To go on: totals parked replay --all, or totals parked drop\n")

		w.FailMongo(1, 13, "aggregate") // a count is an aggregation
		logged, record = w.OperateProjector(nil, "status", "--log"), watched{}
		require.Equal(w, 1, logged.Code)
		require.NoError(w, json.Unmarshal([]byte(logged.Out), &record))
		require.Nil(w, record.Watched.Parked, "unknown is not 0")
		require.EqualValues(w, 2, *record.Watched.Waiting)

		w.FailMongo(1, 13, "aggregate")
		partly := exits(w, 1, w.OperateProjector(nil, "status"))
		require.Contains(w, partly.Out, "unknown: it could not be counted in timeline")
		require.Contains(w, partly.Out, "2 sessions with messages", "the parts that answer are reported")
	})
}

// The age of the newest change increases while nothing is written, although the cluster time stands
// still then.
func TestStatusReportsTheAgeOfTheNewestChange(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		w.StartProjector(nil)
		newest := event("a", 1, "T")
		newest.Position = fmt.Sprintf("82%08X%014X", time.Now().Unix(), 1)
		publish(w, newest)
		w.Completed(1)
		w.Pass(3 * time.Second)
		require.Contains(w, w.OperateProjector(nil, "status").Out, "no message waits; the newest change applied is 3 s old")
		w.Pass(50 * time.Second)
		require.Contains(w, w.OperateProjector(nil, "status").Out, "no message waits; the newest change applied is 53 s old")
	})
}

func TestDoctorOfAProjector(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		for _, name := range []string{"timeline", "mirror", "orders"} {
			set := func(c *projector.Config, _ *projector.Options) { c.Projection = name }
			well := exits(w, 0, w.OperateProjector(set, "doctor"))
			require.NotContains(w, well.Out, "PROBLEM")
			require.Regexp(w, `sessions +they are required, and can be accepted; the lock lasts about 30s`, well.Out)
		}
		for _, collection := range []string{"timeline", "mirror", "mirror_positions", "orders", "orders_positions"} {
			n, err := w.Client.Database(world.ReadModel).Collection(collection).CountDocuments(w.Context(), bson.D{})
			require.NoError(w, err)
			require.Zero(w, n, "the doctor left something in %s", collection)
		}

		const secret = "c2VjcmV0"
		for _, sick := range []struct {
			want   string
			change func(*projector.Config, *projector.Options)
		}{
			{`PROBLEM +service bus +the namespace has no entity "changes/nobody"`, func(c *projector.Config, _ *projector.Options) { c.Subscription = "nobody" }},
			{`PROBLEM +service bus +the connection string is not accepted.*Listen.*disableLocalAuth`, func(c *projector.Config, _ *projector.Options) {
				c.ServiceBus.ConnectionString = "Endpoint=sb://bus:5672;SharedAccessKeyName=nobody;SharedAccessKey=" + secret + ";UseDevelopmentEmulator=true"
			}},
			{`PROBLEM +mongodb +it does not answer`, func(c *projector.Config, _ *projector.Options) {
				c.MongoURI = "mongodb://user:" + secret + "@nowhere:27017/?replicaSet=rs0"
			}},
			{`PROBLEM +mongodb +it does not accept the user\. To fix it: check user, password and authSource in MONGODB_URI`, func(c *projector.Config, _ *projector.Options) {
				c.MongoURI = strings.Replace(c.MongoURI, "//", "//user:"+secret+"@", 1)
			}},
		} {
			got := exits(w, 1, w.OperateProjector(sick.change, "doctor"))
			require.Regexp(w, sick.want, got.Out)
			require.NotContains(w, got.Out+got.Err, secret)
		}
		for command, want := range map[string]string{
			"createIndexes": `PROBLEM +index of parked +it cannot be made.*createIndex on timeline`,
			"update":        `PROBLEM +write +the user may not write.*readWrite`,
		} {
			w.FailMongo(1, 13, command)
			got := exits(w, 1, w.OperateProjector(nil, "doctor"))
			require.Regexp(w, want, got.Out)
		}
		w.FailMongo(1, 13, "createIndexes")
		require.Regexp(w, `PROBLEM +collections +the user may not list or create them`,
			w.OperateProjector(func(c *projector.Config, _ *projector.Options) { c.Projection = "orders" }, "doctor").Out)
		w.FailMongo(1, 20, "update")
		require.Regexp(w, `PROBLEM +write +the deployment has no transactions`, w.OperateProjector(nil, "doctor").Out)

		var found []struct {
			Check, Message, Remedy string
			OK                     bool
		}
		require.NoError(w, json.Unmarshal([]byte(w.OperateProjector(nil, "doctor", "--json").Out), &found))
		require.Equal(w, "settings", found[0].Check)
		require.Len(w, found, 10)
	})
}

// A queue without sessions, and one with short locks.
func TestDoctorChecksSessionsAndLocks(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		require.Regexp(w, `PROBLEM +sessions +"plain" does not require sessions`, w.OperateProjector(from("plain"), "doctor").Out)
		require.Regexp(w, `PROBLEM +sessions +.*their lock lasts only about 5s`, w.OperateProjector(from("short"), "doctor").Out)
	})
}

// G1, G6: the doctor reports when the broker itself dead-letters messages, if it may read that:
// after how many deliveries a failing message is overtaken, and whether an expired one is kept.
func TestG1G6TheDoctorAsksWhenTheBrokerTakesMessagesOut(t *testing.T) {
	inRealTime(t, 0, func(w *world.World) {
		at := w.ServeAdministration()
		doctor := func(change func(*projector.Config)) string {
			return w.OperateProjector(func(c *projector.Config, _ *projector.Options) {
				c.Administration = at
				change(c)
			}, "doctor").Out
		}
		manager, err := azure.ServiceBus{ConnectionString: w.ProjectorConfig().ServiceBus.ConnectionString}.Administer(nil, at, nil)
		require.NoError(t, err)
		has := func(deliveries int32, keeps bool) {
			_, err := manager.UpdateSubscription(t.Context(), world.Topic, world.Subscription, admin.SubscriptionProperties{
				RequiresSession: new(true), MaxDeliveryCount: &deliveries, DeadLetteringOnMessageExpiration: &keeps,
			}, nil)
			require.NoError(t, err)
		}
		deliveries := func(n int) func(*projector.Config) { return func(c *projector.Config) { c.MaxDeliveries = n } }
		has(100, true)
		require.Regexp(t, `ok +deliveries +an aggregate is parked before a message has had 100, after which the broker`, doctor(deliveries(100)))
		require.Regexp(t, `ok +deliveries +an aggregate is parked before a message has had 10 \(MAX_DELIVERIES\); the entity allows 100`, doctor(deliveries(10)))
		well := doctor(deliveries(101))
		require.Regexp(t, `PROBLEM +deliveries +the broker dead-letters a message after 100, and MAX_DELIVERIES is 101: .* overtaken`, well)
		require.Regexp(t, `ok +expiry +messages that have expired are dead-lettered`, well)
		has(100, false)
		require.Regexp(t, `PROBLEM +expiry +"changes/projector" drops messages that have expired`, doctor(deliveries(100)))
		require.Regexp(t, `ok +deliveries +an aggregate is parked before a message has had 100, the value of the entity, which the projector asks for`, doctor(deliveries(0)))
		unknown := func(deliveries int) string {
			return doctor(func(c *projector.Config) { c.Administration, c.MaxDeliveries = "", deliveries })
		}
		require.Regexp(t, `ok +deliveries +MAX_DELIVERIES is 7, and what the entity has is unknown: the administration .*SERVICE_BUS_ADMINISTRATION, the URL`, unknown(7))
		require.Regexp(t, `ok +deliveries +MAX_DELIVERIES is not set and taken for 10, and what the entity has is unknown: the administration`, unknown(0))
	})
}
