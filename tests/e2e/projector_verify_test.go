package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/settings"
	"github.com/sluice-cdc/sluice/tests/internal/workload"
)

// operate runs one command of the projector; change adjusts its settings.
func (w *projectorWorld) operate(change func(*projector.Config, *projector.Options), args ...string) operated {
	w.Helper()
	config := w.config()
	config.SourceDatabase, config.SourceCollection = "shop", "events"
	config.AggregatePath, config.TypePath, config.VersionPath = "aggregateId", "type", "version"
	o := projector.Options{
		Instance: "desk",
		ServiceBus: &azservicebus.ClientOptions{
			NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
				return w.busNet.DialContext(ctx, "", "")
			},
		},
		Mongo: func(o *options.ClientOptions) { o.SetDialer(byName{w.mongoNet}) },
	}
	if change != nil {
		change(&config, &o)
	}
	var out, errOut bytes.Buffer
	load := func() (projector.Config, error) {
		if joined, ok := config.Validate().(interface{ Unwrap() []error }); ok {
			return config, settings.Problems(joined.Unwrap())
		}
		return config, nil
	}
	run := func(context.Context, projector.Config) error { w.Error("the command ran the projector"); return nil }
	code := projector.Execute(w.Context(), args, load, o, &out, &errOut, run)
	w.Logf("$ projector %q → %d\n%s%s", args, code, out.String(), errOut.String())
	return operated{code, out.String(), errOut.String()}
}

func (w *projectorWorld) source() *driver.Collection {
	return w.client.Database("shop").Collection("events")
}

// sell inserts events of the workload into the source and publishes them, all but the last withheld.
func (w *projectorWorld) sell(count, withheld int) {
	w.Helper()
	n := 0
	for e := range workload.Orders(9) {
		if n++; n > count {
			return
		}
		change, raw := inserted(w, e, n)
		_, err := w.source().InsertOne(w.Context(), raw)
		require.NoError(w, err)
		if n <= count-withheld {
			w.publish(change)
		}
	}
}

// Every projection that comes with the projector is recomputed and found right; then each kind of wrong is found, and
// said with its reason.
func TestVerifyFindsEveryDifference(t *testing.T) {
	for name, collection := range map[string]string{"timeline": "timeline", "orders": "customers", "mirror": "mirror"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *projectorWorld) {
				set := func(c *projector.Config, _ *projector.Options) { c.Projection = name }
				w.start(set)
				const count = 300
				w.sell(count, 0)
				w.completed(count)
				right := w.operate(set, "verify")
				require.Equal(w, 0, right.code)
				require.Regexp(w, name+` against shop.events: 300 events, \d+ documents: all right`, right.out)

				c := w.client.Database(readModel).Collection(collection)
				var some []bson.Raw
				cursor, err := c.Find(w.Context(), bson.D{}, options.Find().SetLimit(3))
				require.NoError(w, err)
				require.NoError(w, cursor.All(w.Context(), &some))
				id := func(i int) bson.RawValue { return some[i].Lookup("_id") }
				_, err = c.UpdateByID(w.Context(), id(0), bson.D{{Key: "$set", Value: bson.D{{Key: "extra", Value: 1}}}})
				require.NoError(w, err)
				_, err = c.DeleteOne(w.Context(), bson.D{{Key: "_id", Value: id(1)}})
				require.NoError(w, err)
				_, err = c.InsertOne(w.Context(), bson.D{{Key: "_id", Value: "stranger"}})
				require.NoError(w, err)
				got := w.operate(set, "verify")
				require.Equal(w, 1, got.code)
				require.Empty(w, got.err)
				require.Contains(w, got.out, "extra is 1, expected missing\n    all its events are applied: the document is wrong")
				require.Contains(w, got.out, "is missing")
				require.Contains(w, got.out, collection+` "stranger": is there, and no event of the source makes it`)
				require.Contains(w, got.out, ": 3 differ")
			})
		})
	}
}

// What is only on its way heals while verify waits; what does not come is told from a document that is wrong.
func TestVerifyTellsALagFromADifference(t *testing.T) {
	inBubble(t, func(w *projectorWorld) {
		w.start(nil)
		w.sell(100, 1)
		w.completed(99)
		var behind struct {
			Differing int
			Findings  []struct {
				Collection, ID, Why string
				Says                []string
			}
		}
		got := w.operate(nil, "verify", "--json")
		require.Equal(w, 1, got.code)
		require.NoError(w, json.Unmarshal([]byte(got.out), &behind))
		require.Equal(w, 1, behind.Differing)
		require.Len(w, behind.Findings, 1)
		require.Regexp(w, `aggregate order-\d+ is applied up to version \d+ of \d+: the rest is on its way, or lost|no event of aggregate order-\d+ is applied`, behind.Findings[0].Why)

		// The event comes while verify waits for it.
		verifying := make(chan operated, 1)
		go func() { verifying <- w.operate(nil, "verify", "--wait", "10s") }()
		w.pass(4 * time.Second)
		n := 0
		for e := range workload.Orders(9) {
			if n++; n == 100 {
				change, _ := inserted(w, e, n)
				w.publish(change)
				break
			}
		}
		require.Equal(w, 0, (<-verifying).code)
	})
}

func TestVerifyComparesInParts(t *testing.T) {
	inBubble(t, func(w *projectorWorld) {
		w.start(nil)
		w.sell(300, 0)
		w.completed(300)
		whole, parts := w.operate(nil, "verify"), w.operate(nil, "verify", "--hold", "7")
		require.Equal(w, 0, parts.code)
		require.Equal(w, whole.out, parts.out, "every document is in exactly one part")
		read, err := w.client.Database(readModel).Collection("timeline").DeleteMany(w.Context(), bson.D{{Key: "events", Value: bson.D{{Key: "$gt", Value: 3}}}})
		require.NoError(w, err)
		require.Greater(w, read.DeletedCount, int64(10))
		whole, parts = w.operate(nil, "verify"), w.operate(nil, "verify", "--hold", "7")
		require.Equal(w, 1, parts.code)
		require.Equal(w, whole.out, parts.out)
		require.Contains(w, parts.out, fmt.Sprintf(": %d differ", read.DeletedCount))

		elsewhere := w.operate(func(c *projector.Config, _ *projector.Options) { c.SourceCollection = "event" }, "verify")
		require.Equal(w, 1, elsewhere.code)
		require.Contains(w, elsewhere.out, "shop.event holds no document: check SOURCE_MONGODB_URI")
	})
}

// clockwork writes what the source does not tell.
type clockwork struct{ projection.Timeline }

func (clockwork) Name() string       { return "clockwork" }
func (clockwork) Collection() string { return "clockwork" }
func (clockwork) Project(e projection.Event) ([]projection.Write, error) {
	return []projection.Write{projection.Update("clockwork", e.Aggregate, projection.Set("at", e.Position))}, nil
}

type homeless struct{ clockwork }

func (homeless) Name() string { return "homeless" }

// nowhere is a projection that does not say where it writes.
type nowhere struct{ p homeless }

func (n nowhere) Name() string { return "nowhere" }
func (n nowhere) Project(e projection.Event) ([]projection.Write, error) {
	return n.p.Project(e)
}

func TestVerifySaysWhatItCannotKnow(t *testing.T) {
	inBubble(t, func(w *projectorWorld) {
		registry := projection.Builtin()
		require.NoError(w, registry.Register(clockwork{}))
		require.NoError(w, registry.Register(nowhere{}))
		with := func(name string) func(*projector.Config, *projector.Options) {
			return func(c *projector.Config, o *projector.Options) { c.Projection, o.Projections = name, registry }
		}
		w.start(with("clockwork"))
		w.sell(50, 0)
		w.completed(50)
		got := w.operate(with("clockwork"), "verify")
		require.Equal(w, 0, got.code)
		require.Regexp(w, `\d+ documents are not compared: they depend on what the source does not tell`, got.out)

		refused := w.operate(with("nowhere"), "verify")
		require.Equal(w, 1, refused.code)
		require.Contains(w, refused.err, "implement projection.Stored")
	})
}

func TestVerifyWrongUsage(t *testing.T) {
	inBubble(t, func(w *projectorWorld) {
		for _, wrong := range []struct {
			says   string
			change func(*projector.Config, *projector.Options)
			args   []string
		}{
			{"SOURCE_DATABASE: is required for this command", func(c *projector.Config, _ *projector.Options) { c.SourceDatabase = "" }, []string{"verify"}},
			{"SOURCE_COLLECTION: is required for this command", func(c *projector.Config, _ *projector.Options) { c.SourceCollection = "" }, []string{"verify"}},
			{"SOURCE_MONGODB_URI: is not a MongoDB connection string", func(c *projector.Config, _ *projector.Options) { c.SourceMongoURI = "hunter2" }, []string{"verify"}},
			{"--sample -1: it is the number of documents", nil, []string{"verify", "--sample", "-1"}},
			{"--hold 0: it is the most documents", nil, []string{"verify", "--hold=0"}},
			{"--wait -1s: it is how long", nil, []string{"verify", "--wait=-1s"}},
			{`does not take "orders"`, nil, []string{"verify", "orders"}},
			{"not defined: -fast", nil, []string{"verify", "--fast"}},
		} {
			got := w.operate(wrong.change, wrong.args...)
			require.Equal(w, 2, got.code, fmt.Sprint(wrong.args))
			require.Contains(w, got.err, wrong.says)
			require.NotContains(w, got.err, "hunter2")
		}
		away := w.operate(func(c *projector.Config, _ *projector.Options) {
			c.SourceMongoURI = "mongodb://user:hunter2@nowhere:27017/?replicaSet=rs0"
		}, "verify")
		require.Equal(w, 1, away.code)
		require.NotContains(w, away.err, "hunter2")
	})
}
