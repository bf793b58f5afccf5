package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/conformance/internal/mongod"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// entities returns the entities that the administration finds.
func entities() *servicebus.Config {
	out := servicebus.Outbound{LockDuration: 30 * time.Second, MaxDeliveryCount: 10}
	withSessions := out
	withSessions.RequiresSession = true
	return &servicebus.Config{
		Queues: []servicebus.Queue{
			{Name: "plain", Outbound: out},
			{Name: "sessions", Outbound: withSessions},
			{Name: "unique", Outbound: out, Inbound: servicebus.Inbound{RequiresDuplicateDetection: true, DuplicateDetectionWindow: 5 * time.Minute}},
		},
		Topics: []servicebus.Topic{{Name: "news", Subscriptions: []servicebus.Subscription{{Name: "all", Outbound: out}}}},
	}
}

// ownEntities are so many of each, since the scenarios of Service Bus run side by side and each has
// its own.
func ownEntities(n int) *servicebus.Config {
	out := servicebus.Outbound{LockDuration: 30 * time.Second, MaxDeliveryCount: 10}
	short := servicebus.Outbound{LockDuration: 5 * time.Second, MaxDeliveryCount: 3, DeadLetteringOnMessageExpiration: true}
	requiring := func(o servicebus.Outbound) servicebus.Outbound {
		o.RequiresSession = true
		return o
	}
	c := &servicebus.Config{Queues: []servicebus.Queue{
		{Name: "closed", Inbound: servicebus.Inbound{SendDisabled: true}},
		{Name: "shut", Outbound: servicebus.Outbound{ReceiveDisabled: true}},
	}}
	for i := range n {
		own := func(kind string) string { return kind + strconv.Itoa(i) }
		c.Queues = append(c.Queues,
			servicebus.Queue{Name: own("plain"), Outbound: out},
			servicebus.Queue{Name: own("sessions"), Outbound: requiring(out)},
			servicebus.Queue{Name: own("short"), Outbound: short},
			servicebus.Queue{Name: own("shortSessions"), Outbound: requiring(short)},
			servicebus.Queue{Name: own("unique"), Outbound: out, Inbound: servicebus.Inbound{RequiresDuplicateDetection: true, DuplicateDetectionWindow: 5 * time.Minute}},
		)
		c.Topics = append(c.Topics, servicebus.Topic{Name: own("news"), Subscriptions: []servicebus.Subscription{{Name: "all", Outbound: out}, {Name: "some", Outbound: out}}})
	}
	return c
}

// listens returns a key that may do nothing else, with the same secret as the root key.
func listens() servicebus.Key {
	k := servicebus.RootKey()
	k.Name, k.Rights = "listen", servicebus.Listen
	return k
}

// refused are the scenarios that the embedded servers refuse as unsupported.
var refused = map[string][]string{
	"servicebus": {"transactions"},
	"mongosh":    {"rs.printReplicationInfo", "explain", "mapReduce", "users", "killOp"},
	"qpid":       {"a filter that the service does not know", "transactions"},
}

// since are the versions of MongoDB that have what a scenario asks for: a real one may be older.
var since = map[string][2]int32{
	"bulk write of several collections": {8, 0}, "table: dates": {5, 0}, "table: arrays and sets": {6, 0},
}

// version returns the version of the MongoDB at uri.
func version(t *testing.T, uri string) (is [2]int32) {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	require.NoError(t, err)
	defer func() { _ = client.Disconnect(context.WithoutCancel(t.Context())) }()
	var info struct{ VersionArray []int32 }
	require.NoError(t, client.Database("admin").RunCommand(t.Context(), bson.D{{Key: "buildInfo", Value: 1}}).Decode(&info))
	copy(is[:], info.VersionArray)
	return is
}

// TestJavaScript runs the scenarios with @azure/service-bus, mongodb and @azure/storage-blob.
func TestJavaScript(t *testing.T) {
	t.Parallel()
	scenarios(t, javaScript(t), map[string]string{
		"servicebus": "@azure/service-bus 7.9.5", "mongodb": "mongodb 7.9.0", "blob": "@azure/storage-blob 12.34.0",
		"administration": "@azure/service-bus 7.9.5",
	})
}

// TestPython runs the scenarios with azure-servicebus, pymongo and azure-storage-blob.
func TestPython(t *testing.T) {
	t.Parallel()
	scenarios(t, python(t), map[string]string{
		"servicebus": "azure-servicebus 7.15.0", "mongodb": "pymongo 4.20.0", "blob": "azure-storage-blob 12.31.1",
		"administration": "azure-servicebus 7.15.0",
	})
}

// Proton is a client of AMQP 1.0 without any knowledge of Service Bus.
func TestProton(t *testing.T) {
	t.Parallel()
	scenarios(t, proton(t), map[string]string{"qpid": "python-qpid-proton-wheel 0.39.0"})
}

// TestMongosh runs commands as typed into MongoDB's shell.
func TestMongosh(t *testing.T) {
	t.Parallel()
	scenarios(t, shell(t), map[string]string{"mongosh": "mongosh 2.12.0"})
}

// TestJava runs the scenarios with azure-messaging-servicebus, mongodb-driver-sync and
// azure-storage-blob.
func TestJava(t *testing.T) {
	t.Parallel()
	scenarios(t, java(t), map[string]string{
		"servicebus": "azure-messaging-servicebus 7.17.16", "mongodb": "mongodb-driver-sync 5.6.2", "blob": "azure-storage-blob 12.33.1",
	})
}

var titles = map[string]string{"servicebus": "Service Bus", "mongodb": "MongoDB", "blob": "Blob storage", "administration": "Administration", "qpid": "AMQP 1.0", "mongosh": "MongoDB"}

func scenarios(t *testing.T, c client, packages map[string]string) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for area, pkg := range packages {
		t.Run(area, func(t *testing.T) {
			t.Parallel()
			if mongod.URI() != "" && titles[area] != "MongoDB" {
				t.Skip("it asks nothing of MongoDB")
			}
			o := emulator.Options{ServiceBus: entities(), ServiceBusKeys: []servicebus.Key{servicebus.RootKey(), listens()}, TLS: true}
			if area == "servicebus" || area == "qpid" {
				o.ServiceBus = ownEntities(len(shared(t)))
			}
			s := emulator.Start(t, o)
			ca := filepath.Join(t.TempDir(), "ca.pem")
			require.NoError(t, os.WriteFile(ca, s.CA(), 0o600))
			c := c
			uri, real := s.Endpoint(emulator.EnvMongo), mongod.URI() != ""
			if real {
				uri = mongod.ForTest(t)
			}
			c.env = append(slices.Clone(c.env), "NODE_EXTRA_CA_CERTS="+ca, "SERVICE_BUS_CA="+ca, emulator.EnvMongo+"="+uri)
			is := [2]int32{}
			if real {
				is = version(t, uri)
			}
			count := map[string]int{}
			var names []string
			for _, r := range results(t, c.run(t, s, c.dir, c.program(area))) {
				count[r.Outcome]++
				names = append(names, r.Name)
				came, young := since[r.Name]
				switch young = young && slices.Compare(is[:], came[:]) < 0; {
				case real && (r.Outcome == "passed") != young:
				case r.Outcome == "passed" && !real:
					require.NotContains(t, refused[area], r.Name, "it passes now: take it off the list of what is refused")
				case r.Outcome == "refused" && !real:
					require.Contains(t, refused[area], r.Name, r.Detail)
				default:
					t.Errorf("%s: %s: %s", r.Name, r.Outcome, r.Detail)
				}
			}
			if area == "servicebus" {
				require.ElementsMatch(t, shared(t).of(c.name), names, "servicebus.json has a scenario that did not run, or not one that did")
			}
			if real {
				t.Logf("%d passed", count["passed"])
				return
			}
			row := fmt.Sprintf("| %s, %s | %s | %d | %d | %d |\n", c.name, pkg, titles[area], count["passed"], count["refused"], count["wrong"])
			require.True(t, strings.Contains(string(readme), row), "the table of README.md has not this run's row: %s", row)
		})
	}
}

// scenario is a scenario of Service Bus, which every language has unless it gives a reason.
type scenario struct {
	Name string
	Not  map[string]string // by language
}

type sharedScenarios []scenario

func shared(t *testing.T) sharedScenarios {
	t.Helper()
	text, err := os.ReadFile("servicebus.json")
	require.NoError(t, err)
	var all sharedScenarios
	require.NoError(t, json.Unmarshal(text, &all))
	return all
}

// of names those of a language.
func (all sharedScenarios) of(language string) []string {
	var names []string
	for _, x := range all {
		if x.Not[language] == "" {
			names = append(names, x.Name)
		}
	}
	return names
}
