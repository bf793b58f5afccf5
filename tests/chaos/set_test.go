package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/chaos/internal/netns"
	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/environ"
	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/internal/witness"
)

// member is a mongod in a network namespace of its own.
type member struct {
	t       *testing.T
	ns      *netns.Namespace
	address string
	args    []string
	process *exec.Cmd
}

func (m *member) start() {
	m.process = exec.Command(m.args[0], m.args[1:]...)
	require.NoError(m.t, m.process.Start())
}

func (m *member) kill() {
	_ = m.process.Process.Kill()
	_ = m.process.Wait()
}

func (m *member) signal(s syscall.Signal) { require.NoError(m.t, m.process.Process.Signal(s)) }

// realSet starts three members of a replica set, which reach each other and this process over a
// bridge, and returns its connection string.
func realSet(t *testing.T, mongod string) (members []*member, uri string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	const bridge = "sluice-set"
	_ = netns.IP(ctx, "link", "del", bridge) // of a run that was killed
	require.NoError(t, netns.IP(ctx, "link", "add", bridge, "type", "bridge"))
	t.Cleanup(func() { require.NoError(t, netns.IP(ctx, "link", "del", bridge)) })
	require.NoError(t, netns.IP(ctx, "addr", "add", "10.99.7.254/24", "dev", bridge))
	require.NoError(t, netns.IP(ctx, "link", "set", bridge, "up"))
	config := bson.A{}
	uri = "mongodb://"
	for n := range 3 {
		ns, address, link := netns.ForTest(ctx, t, fmt.Sprintf("set-%d", n)), fmt.Sprintf("10.99.7.%d", n+1), fmt.Sprintf("sluice-set-%d", n)
		require.NoError(t, netns.IP(ctx, "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", ns.Name()))
		require.NoError(t, netns.IP(ctx, "link", "set", link, "master", bridge, "up"))
		require.NoError(t, ns.IP(ctx, "addr", "add", address+"/24", "dev", "eth0"))
		require.NoError(t, ns.IP(ctx, "link", "set", "eth0", "up"))
		m := &member{t: t, ns: ns, address: address, args: append(ns.Enter(), mongod, "--dbpath", t.TempDir(), "--bind_ip", address, "--port", "27017",
			"--replSet", "rs0", "--wiredTigerCacheSizeGB", "0.25", "--oplogSize", "64", "--quiet")}
		m.start()
		t.Cleanup(m.kill)
		members = append(members, m)
		config = append(config, bson.D{{Key: "_id", Value: n}, {Key: "host", Value: address + ":27017"}})
		uri += address + ":27017,"
	}
	uri = uri[:len(uri)-1] + "/?replicaSet=rs0"
	first := connect(t, "mongodb://"+members[0].address+":27017/?directConnection=true")
	require.NoError(t, first.Database("admin").RunCommand(ctx, bson.D{{Key: "replSetInitiate", Value: bson.D{
		{Key: "_id", Value: "rs0"},
		{Key: "members", Value: config},
		{Key: "settings", Value: bson.D{{Key: "electionTimeoutMillis", Value: 3000}}},
	}}}).Err())
	return members, uri
}

func connect(t *testing.T, uri string) *driver.Client {
	t.Helper()
	c, err := driver.Connect(options.Client().ApplyURI(uri))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Disconnect(context.WithoutCancel(t.Context())) })
	return c
}

// probe writes to the set until stop is called, which returns for how long it acknowledged no write
// that a majority has: the sum of such times, where they are longer than a second.
func probe(t *testing.T, uri string) (stop func() time.Duration) {
	t.Helper()
	writes := connect(t, uri).Database("probe").Collection("writes", options.Collection().SetWriteConcern(writeconcern.Majority()))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan time.Duration, 1)
	go func() {
		last, sum := time.Now(), time.Duration(0)
		for ctx.Err() == nil {
			trying, enough := context.WithTimeout(ctx, 500*time.Millisecond)
			_, err := writes.InsertOne(trying, bson.D{})
			enough()
			if err == nil {
				if without := time.Since(last); without > time.Second {
					sum += without
				}
				last = time.Now()
			}
			_ = retry.Sleep(ctx, 50*time.Millisecond)
		}
		ended <- sum.Round(10 * time.Millisecond)
	}()
	return func() time.Duration { cancel(); return <-ended }
}

// primary returns the member that the clients of the set take for its primary.
func primary(t *testing.T, client *driver.Client, members []*member) *member {
	t.Helper()
	var hello struct {
		Me string `bson:"me"`
	}
	require.NoError(t, client.Database("admin").RunCommand(t.Context(), bson.D{{Key: "hello", Value: 1}}).Decode(&hello))
	for _, m := range members {
		if m.address+":27017" == hello.Me {
			return m
		}
	}
	t.Fatalf("the primary %q is no member", hello.Me)
	return nil
}

// G1, G2, G4: the checkpoint is in a real replica set of three members, whose primary is killed,
// frozen, and cut off from the others while clients still reach it. One replica leads at a time,
// and each event is published, in order.
func TestG1G2G4ARealSetThatHoldsTheCheckpoint(t *testing.T) {
	mongod := os.Getenv("CHAOS_MONGOD")
	if mongod == "" {
		t.Skip("CHAOS_MONGOD is not set to a mongod: scripts/mongod.sh set")
	}
	require.NoError(t, netns.Probe(t.Context()))
	const lasts = 15 * time.Second // longer than an election
	members, uri := realSet(t, mongod)
	set := connect(t, uri)

	s, err := emulator.New(t.Context(), emulator.Options{})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	var mu sync.Mutex
	var accepted []history.Acceptance
	s.ServiceBus.Observe(func(a servicebus.Accepted) {
		mu.Lock()
		defer mu.Unlock()
		accepted = append(accepted, witness.Accepted(a))
	})
	running.Go(func() { _ = s.Run(ctx) })
	config, err := environ.Load(map[string]string{
		emulator.EnvMongo: s.Endpoint(emulator.EnvMongo), emulator.EnvServiceBus: s.Endpoint(emulator.EnvServiceBus), "SERVICE_BUS_TOPIC": emulator.Topic,
		"MONGODB_DATABASE": "shop", "MONGODB_COLLECTION": "events", "OPERATIONS": "insert", "START_FROM": "timestamp", "START_AT": time.Now().UTC().Format(time.RFC3339), "HTTP_ADDR": "",
		"CHECKPOINT_STORE": "mongodb", "CHECKPOINT_MONGODB_URI": uri, "CHECKPOINT_MONGODB_DATABASE": "sluice",
	}, producer.LoadConfig)
	require.NoError(t, err)
	var replicas sync.WaitGroup
	defer replicas.Wait()
	serving, end := context.WithCancel(ctx)
	defer end()
	for _, name := range []string{"a", "b"} {
		replicas.Go(func() {
			if err := producer.Run(serving, config, producer.Options{Instance: name, Logger: slog.New(slog.DiscardHandler)}); err != nil {
				t.Errorf("replica %s: %v", name, err)
			}
		})
	}

	events := connect(t, s.Endpoint(emulator.EnvMongo)).Database("shop").Collection("events")
	var inserted int64
	reached := func(version int64) bool {
		mu.Lock()
		defer mu.Unlock()
		return len(accepted) > 0 && accepted[len(accepted)-1].Version >= version
	}
	// published inserts events for as long as a trouble lasts, and until the last one is accepted.
	published := func(what string) {
		t.Helper()
		begun := time.Now()
		var last, longest time.Duration
		unavailable := probe(t, uri)
		require.Eventually(t, func() bool {
			inserted++
			_, err := events.InsertOne(t.Context(), bson.D{{Key: "aggregateId", Value: "a"}, {Key: "version", Value: inserted}, {Key: "type", Value: "T"}, {Key: "occurredAt", Value: "now"}})
			require.NoError(t, err)
			since := time.Since(begun)
			if !reached(inserted - 1) {
				longest = max(longest, since-last)
				return false
			}
			last = since
			return since > lasts
		}, 2*time.Minute, 20*time.Millisecond, what)
		t.Logf("%s: nothing was published for at most %s; the set acknowledged no write for %s", what, longest.Round(10*time.Millisecond), unavailable())
	}
	published("at first")
	m := primary(t, set, members)
	m.kill()
	published("the primary was killed")
	m.start()
	published("it came back")

	m = primary(t, set, members)
	m.signal(syscall.SIGSTOP)
	published("the primary was frozen")
	m.signal(syscall.SIGCONT)
	published("it went on")

	m = primary(t, set, members)
	for _, other := range members {
		if other != m {
			require.NoError(t, m.ns.IP(t.Context(), "route", "add", "blackhole", other.address+"/32"))
		}
	}
	published("the primary was cut off from the others")
	for _, other := range members {
		if other != m {
			require.NoError(t, m.ns.IP(t.Context(), "route", "del", "blackhole", other.address+"/32"))
		}
	}
	published("it was back")
	require.Eventually(t, func() bool { return reached(inserted) }, time.Minute, 20*time.Millisecond)
	end()
	replicas.Wait()

	var version, epoch int64
	terms := map[int64]bool{}
	for _, a := range accepted {
		require.GreaterOrEqual(t, a.Epoch, epoch, "an earlier leader published after a later one")
		epoch, terms[a.Epoch] = a.Epoch, true
		if !a.Duplicate && a.Version > version {
			require.Equal(t, version+1, a.Version, "an event is missing")
			version = a.Version
		}
	}
	require.Equal(t, inserted, version)
	t.Logf("%d events, %d terms", inserted, len(terms))
}
