package producer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/internal/leader"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/settings"
)

func TestStreamsShareWhatTheyDoNotOverride(t *testing.T) {
	minimal(t)
	set(t, map[string]string{
		"STREAMS":                    "orders,web-carts",
		"ORDERS_SERVICE_BUS_TOPIC":   "orders",
		"WEB_CARTS_MONGODB_DATABASE": "web", "WEB_CARTS_PUBLISH_LANES": "4",
	})
	configs, err := loadStreams()
	require.NoError(t, err)
	require.Len(t, configs, 2)
	orders, carts := configs[0], configs[1]
	require.Equal(t, []any{"shop.events", "orders", 16}, []any{orders.Stream, orders.Topic, orders.PublishLanes})
	require.Equal(t, []any{"web.events", "changes", 4}, []any{carts.Stream, carts.Topic, carts.PublishLanes})
	require.Equal(t, orders.MongoURI, carts.MongoURI)
	_, err = LoadConfig()
	require.EqualError(t, err, "1 setting must be fixed:\n  - STREAMS: names several streams")
}

func TestOneStreamMayHaveAName(t *testing.T) {
	minimal(t)
	set(t, map[string]string{"STREAMS": "orders", "ORDERS_MONGODB_COLLECTION": "orders"})
	c, err := LoadConfig()
	require.NoError(t, err)
	require.Equal(t, "shop.orders", c.Stream)
}

func TestEveryProblemOfEveryStreamIsReportedByVariable(t *testing.T) {
	set(t, map[string]string{
		"MONGODB_URI": "mongodb://db.example/", "MONGODB_DATABASE": "shop",
		"SERVICE_BUS_NAMESPACE": "contoso.servicebus.windows.net", "SERVICE_BUS_TOPIC": "changes",
		"BLOB_ACCOUNT_URL": "https://contoso.blob.core.windows.net",
		"STREAMS":          "orders,payments,orders,Carts,refunds",
		"BATCH_SCOPE":      "all", // shared: reported once

		"ORDERS_MONGODB_COLLECTION": "orders", "ORDERS_HTTP_ADDR": ":9090", "ORDERS_FENCE_AFTER": "7s",
		"PAYMENTS_SERVICE_BUS_QUEUE": "payments", "PAYMENTS_LEASE_DURATION": "soon",
		"CARTS_MONGODB_COLLECTION":   "carts",
		"REFUNDS_MONGODB_COLLECTION": "orders",
	})
	_, err := loadStreams()
	require.EqualError(t, err, `9 settings must be fixed:
  - ORDERS_HTTP_ADDR: is a setting of the whole process: set HTTP_ADDR instead
  - TAKEOVER_AFTER: must exceed ORDERS_FENCE_AFTER (7s) by at least 500ms (it is 4s), or a standby would lead beside a leader that may still send
  - BATCH_SCOPE: must be one of auto, session, mixed (it is "all")
  - PAYMENTS_MONGODB_COLLECTION (or MONGODB_COLLECTION): is required and not set
  - PAYMENTS_LEASE_DURATION: its value cannot be read as a duration (for example 500ms, 15s, 2m)
  - SERVICE_BUS_TOPIC, PAYMENTS_SERVICE_BUS_QUEUE: set exactly one of them
  - STREAMS: names orders twice
  - STREAMS: "Carts" is not a valid stream name: use lower-case letters, digits and single hyphens, and begin with a letter
  - STREAMS: orders and refunds are both the stream "shop.orders": watch two collections, or set REFUNDS_STREAM_NAME`)
}

func TestAStreamIsChosenByEitherName(t *testing.T) {
	names := []string{"orders", "payments"}
	configs := []Config{{Stream: "shop.orders", Streams: names}, {Stream: "shop.payments", Streams: names}}
	for _, name := range []string{"payments", "shop.payments"} {
		c, err := chooseStream(configs, name)
		require.NoError(t, err)
		require.Equal(t, "shop.payments", c.Stream)
	}
	_, err := chooseStream(configs, "")
	require.ErrorIs(t, err, commandline.ErrUsage)
	only, err := chooseStream([]Config{{Stream: "shop.events"}}, "")
	require.NoError(t, err)
	require.Equal(t, "shop.events", only.Stream)
}

func TestAReplicaLeavesAFreeStreamToOthersTheMoreItLeads(t *testing.T) {
	var p process
	for range 6 {
		p.streams = append(p.streams, &replica{cfg: Config{StandbyPoll: time.Second}})
	}
	own := p.streams[0]
	own.active.Store(&activeTerm{})
	require.Zero(t, p.yield(own), "its own leading does not count")
	for n, want := range []time.Duration{1, 2, 3, 3, 3} {
		p.streams[n+1].active.Store(&activeTerm{})
		require.Equal(t, want*time.Second, p.yield(own))
	}
}

// able returns a replica of a stream that has reached all that it takes to lead.
func able(t *testing.T) *replica {
	t.Helper()
	s := &replica{election: leader.New(leader.Config{
		TakeoverAfter: time.Hour, HeartbeatInterval: time.Second, StandbyPoll: time.Second, Yield: func() time.Duration { return 0 },
	}, leased{}, nil, slog.New(slog.DiscardHandler))}
	s.dependencies.mongo.Store(true)
	s.dependencies.serviceBus.Store(true)
	require.ErrorContains(t, s.missingDependencies(), "storage has not been reached yet")
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- s.election.Run(ctx, nil) }()
	require.Eventually(t, func() bool { return s.missingDependencies() == nil }, time.Second, time.Millisecond)
	stop()
	require.NoError(t, <-done)
	return s
}

// leased is a checkpoint leased by another replica.
type leased struct{ leader.Records }

func (leased) Read(context.Context) (checkpoint.Snapshot, error) {
	return checkpoint.Snapshot{Leased: true, Tag: "1"}, nil
}

func TestAReplicaIsReadyWhileAnyOfItsStreamsIsWell(t *testing.T) {
	p := process{streams: []*replica{able(t), able(t)}}
	require.NoError(t, p.ready())
	failure := errors.New("history is lost")
	p.streams[0].failure.Store(&failure)
	require.NoError(t, p.ready())
	p.streams[1].dependencies.serviceBus.Store(false)
	require.ErrorContains(t, p.ready(), "Service Bus has not been reached yet")
	p.streams[1].failure.Store(&failure)
	require.Error(t, p.ready())
}

// The command config shows every setting's value, its source, and its default; of a
// secret only that it is set.
func TestConfigShowsTheSourceOfEverySetting(t *testing.T) {
	minimal(t)
	set(t, map[string]string{"STREAMS": "orders", "PUBLISH_LANES": "0", "ORDERS_MONGODB_COLLECTION": "orders"})
	config := func(args ...string) (code int, out string) {
		var o, e bytes.Buffer
		code = Execute(t.Context(), append([]string{"config"}, args...), nil, Options{}, &o, &e, nil)
		require.Empty(t, e.String())
		require.NotContains(t, o.String(), "hunter2")
		return code, o.String()
	}
	code, out := config()
	require.Equal(t, 0, code, "it shows what is; --lint judges")
	require.Regexp(t, `MONGODB_URI +\(set; secret\) +environment +required`, out)
	require.Regexp(t, `LEASE_DURATION +15s +default +15s`, out)
	require.Regexp(t, `MONGODB_COLLECTION +events +environment +required`, out)
	require.Regexp(t, `ORDERS_MONGODB_COLLECTION +orders +environment +MONGODB_COLLECTION = events`, out)
	require.Contains(t, out, "1 setting must be fixed:\n  - PUBLISH_LANES: must be at least 1")
	for _, name := range settings.Names(Config{}) {
		require.Contains(t, out, "\n"+name+" ")
	}
	code, out = config("--lint")
	require.Equal(t, 1, code)
	require.NotContains(t, out, "LEASE_DURATION")

	code, out = config("--json")
	require.Equal(t, 0, code)
	var shown struct {
		Settings []settings.Setting
		Problems []string
	}
	require.NoError(t, json.Unmarshal([]byte(out), &shown))
	require.Contains(t, shown.Settings, settings.Setting{Name: "MONGODB_URI", Value: settings.Hidden, From: "environment", Required: true, Secret: true})
	require.Len(t, shown.Problems, 1)
	code, _ = config("--json", "--lint")
	require.Equal(t, 1, code)
}

// barrier answers requests with 200, each once a number of them has arrived.
type barrier struct {
	waits sync.WaitGroup
	paths chan string
}

func (b *barrier) Do(r *http.Request) (*http.Response, error) {
	b.waits.Done()
	all := make(chan struct{})
	go func() { b.waits.Wait(); close(all) }()
	select {
	case <-all:
		b.paths <- r.URL.Path
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
}

// A process that has ended holds up the takeover of none of its streams: the lease of one is
// released while the release of another is unanswered.
func TestLeasesOfAnEndedProcessAreReleasedAtOnce(t *testing.T) {
	minimal(t)
	set(t, map[string]string{
		"STREAMS": "orders,carts", "ORDERS_MONGODB_COLLECTION": "orders", "CARTS_MONGODB_COLLECTION": "carts", "BLOB_ACCOUNT_URL": "",
		"BLOB_CONNECTION_STRING": "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=a2V5;BlobEndpoint=http://blob.example/a;",
	})
	cfgs, err := loadStreams()
	require.NoError(t, err)
	transport := &barrier{paths: make(chan string, 2)}
	transport.waits.Add(2)
	var log bytes.Buffer
	opts := Options{
		Logger: slog.New(slog.NewJSONHandler(&log, nil)),
		Blob:   &azblob.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: transport}},
	}
	releaseAll(t.Context(), cfgs, map[string]string{"shop.orders": "lease-a", "shop.carts": "lease-b"}, errors.New("killed"), opts)
	require.Len(t, transport.paths, 2, log.String())
	require.NotContains(t, log.String(), "cannot release")
}
