package e2e

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector"
)

func TestStatusOfAProjection(t *testing.T) {
	inBubble(t, func(w *projectorWorld) {
		empty := w.operate(nil, "status")
		require.Equal(w, 0, empty.code)
		require.Contains(w, empty.out, "newest applied  nothing is applied yet")
		require.Contains(w, empty.out, "waiting         0 sessions have messages")

		p := w.start(nil)
		w.publish(event("a", 1, "T"), event("a", 2, "T"))
		bad := event("b", 3, "T")
		bad.Body = bson.Raw(documentChange("b", 3, "insert").Body) // no document
		w.publish(bad)
		w.publish(event("b", 4, "T"))
		w.eventually("b is parked", func() bool { return w.bus.Stats(subPath).DeadLettered == 2 })
		w.completed(2)
		_, err := p.end()
		require.NoError(w, err)
		w.publish(event("c", 5, "T"))
		w.publish(event("d", 6, "T"))

		var status struct {
			Projection, Database, Entity string
			Parked                       int64
			Newest                       string           `json:"newest_position"`
			Aggregate                    string           `json:"newest_aggregate"`
			Waiting                      int64            `json:"waiting_sessions"`
			Dead                         map[string]int64 `json:"dead_lettered"`
		}
		got := w.operate(nil, "status", "--json")
		require.Equal(w, 0, got.code, got.err)
		require.NoError(w, json.Unmarshal([]byte(got.out), &status))
		require.Equal(w, "timeline", status.Projection)
		require.Equal(w, readModel, status.Database)
		require.Equal(w, "changes/projector", status.Entity)
		require.EqualValues(w, 1, status.Parked)
		require.Equal(w, event("a", 2, "T").Position, status.Newest)
		require.Equal(w, "a", status.Aggregate)
		require.EqualValues(w, 2, status.Waiting)
		require.Equal(w, map[string]int64{"ProjectionFailed": 1, "AggregateParked": 1}, status.Dead)
		require.Regexp(w, `dead-lettered +1 AggregateParked, 1 ProjectionFailed`, w.operate(nil, "status").out)

		w.fail("ping", 13, 2)
		partly := w.operate(nil, "status")
		require.Equal(w, 1, partly.code)
		require.Contains(w, partly.out, "unknown: MongoDB does not answer")
		require.Contains(w, partly.out, "2 sessions have messages", "what answers is told all the same")
	})
}

func TestDoctorOfAProjector(t *testing.T) {
	inBubble(t, func(w *projectorWorld) {
		for _, name := range []string{"timeline", "mirror", "orders"} {
			set := func(c *projector.Config, _ *projector.Options) { c.Projection = name }
			well := w.operate(set, "doctor")
			require.Equal(w, 0, well.code)
			require.NotContains(w, well.out, "PROBLEM")
			require.Regexp(w, `sessions +they are required, and can be accepted; the lock lasts about 30s`, well.out)
		}
		for _, collection := range []string{"timeline", "mirror", "mirror_positions", "orders", "orders_positions"} {
			n, err := w.client.Database(readModel).Collection(collection).CountDocuments(w.Context(), bson.D{})
			require.NoError(w, err)
			require.Zero(w, n, "the doctor left something in %s", collection)
		}

		const secret = "c2VjcmV0"
		for _, sick := range []struct {
			says   string
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
				c.MongoURI = "mongodb://user:" + secret + "@mongo:27017/?replicaSet=rs0"
			}},
		} {
			got := w.operate(sick.change, "doctor")
			require.Equal(w, 1, got.code)
			require.Regexp(w, sick.says, got.out)
			require.NotContains(w, got.out+got.err, secret)
		}
		for command, says := range map[string]string{
			"createIndexes": `PROBLEM +index of parked +it cannot be made.*createIndex on timeline`,
			"update":        `PROBLEM +write +the user may not write.*readWrite`,
		} {
			w.fail(command, 13, 1)
			got := w.operate(nil, "doctor")
			require.Equal(w, 1, got.code)
			require.Regexp(w, says, got.out)
		}
		w.fail("createIndexes", 13, 1)
		require.Regexp(w, `PROBLEM +collections +the user may not look for them or make them`,
			w.operate(func(c *projector.Config, _ *projector.Options) { c.Projection = "orders" }, "doctor").out)
		w.fail("update", 20, 1)
		require.Regexp(w, `PROBLEM +write +the deployment has no transactions`, w.operate(nil, "doctor").out)

		var found []struct {
			Check, Says, Mend string
			OK                bool
		}
		require.NoError(w, json.Unmarshal([]byte(w.operate(nil, "doctor", "--json").out), &found))
		require.Equal(w, "settings", found[0].Check)
		require.Len(w, found, 7)
	})
}

// A queue without sessions, and one whose locks are short.
func TestDoctorKnowsSessions(t *testing.T) {
	inBubble(t, func(w *projectorWorld) {
		queue := func(name string) func(*projector.Config, *projector.Options) {
			return func(c *projector.Config, _ *projector.Options) { c.Topic, c.Subscription, c.Queue = "", "", name }
		}
		require.Regexp(w, `PROBLEM +sessions +"plain" does not require sessions`, w.operate(queue("plain"), "doctor").out)
		require.Regexp(w, `PROBLEM +sessions +.*their lock lasts only about 5s`, w.operate(queue("short"), "doctor").out)
	})
}

func TestStatusAndDoctorWrongUsage(t *testing.T) {
	inBubble(t, func(w *projectorWorld) {
		for _, command := range []string{"status", "doctor"} {
			for says, args := range map[string][]string{`does not take "now"`: {command, "now"}, "not defined: -fast": {command, "--fast"}} {
				got := w.operate(nil, args...)
				require.Equal(w, 2, got.code)
				require.Contains(w, got.err, says)
			}
			got := w.operate(func(c *projector.Config, _ *projector.Options) { c.MongoURI = "" }, command)
			require.Equal(w, 2, got.code)
			require.Contains(w, got.err, "MONGODB_URI: is required")
			got = w.operate(func(c *projector.Config, _ *projector.Options) { c.Projection = "none" }, command)
			require.Equal(w, 2, got.code)
			require.Contains(w, got.err, "PROJECTION: is not one of ")
		}
	})
}
