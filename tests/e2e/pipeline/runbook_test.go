package pipeline_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/page"
	"github.com/sluice-cdc/sluice/tests/internal/stack"
)

// took matches what differs between the outputs of two runs.
var took = regexp.MustCompile(`built in \S+`)

// G1, G3: the documented procedure for a new version is followed word by word, while events are
// committed: each command prints what the page shows, and readers see each event once, in whichever
// version.
func TestG3TheProcedureForANewVersionIsFollowed(t *testing.T) {
	steps := page.Steps(t, "../../../docs/build.md", "## A new version of a projection")
	s := newRealStack(t, false)
	const aggregates, each = 30, 20
	model := s.events.Database().Client().Database("readmodel")
	_, err := s.events.Indexes().CreateOne(t.Context(), driver.IndexModel{Keys: bson.D{{Key: "aggregateId", Value: 1}, {Key: "version", Value: 1}}})
	require.NoError(t, err)
	versions := map[string]int{}
	commit := func(n int) {
		var documents []any
		for i := range n {
			aggregate := fmt.Sprintf("a%02d", i%aggregates)
			versions[aggregate]++
			documents = append(documents, bson.D{
				{Key: "aggregateId", Value: aggregate},
				{Key: "version", Value: versions[aggregate]},
				{Key: "type", Value: "Counted"},
				{Key: "occurredAt", Value: fmt.Sprint(versions[aggregate])},
			})
		}
		_, err := s.events.InsertMany(t.Context(), documents)
		require.NoError(t, err)
	}
	s.start("a")
	s.until("the stream has a checkpoint", func() bool { return s.checkpoint().Position != "" })
	for name, value := range map[string]string{
		"READ_MODEL_DATABASE": "readmodel", "PROJECTION": "timeline", "SERVICE_BUS_SUBSCRIPTION": stack.Subscription,
		"SOURCE_DATABASE": "shop", "SOURCE_COLLECTION": "events",
	} {
		t.Setenv(name, value)
	}
	project := func() (stop func()) {
		config, err := projector.LoadConfig()
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		var running sync.WaitGroup
		running.Go(func() {
			if err := projector.Run(ctx, config, projector.Options{Logger: slog.New(slog.DiscardHandler)}); err != nil {
				t.Error(err)
			}
		})
		stop = sync.OnceFunc(func() { cancel(); running.Wait() })
		t.Cleanup(stop)
		return stop
	}
	holds := func(collection string) bool {
		n, err := model.Collection(collection).CountDocuments(t.Context(), bson.D{{Key: "events", Value: versions["a00"]}})
		require.NoError(t, err)
		return n == aggregates
	}
	run := func(next page.Step) (code int, out string) {
		words := strings.Fields(next.Command)
		for ; strings.Contains(words[0], "="); words = words[1:] {
			name, value, _ := strings.Cut(words[0], "=")
			defer func(before string) { require.NoError(t, os.Setenv(name, before)) }(os.Getenv(name)) //nolint:usetesting // for one command
			require.NoError(t, os.Setenv(name, value))                                                 //nolint:usetesting // the same
		}
		require.Equal(t, "projector", words[0])
		var printed, failed bytes.Buffer
		code = projector.Execute(t.Context(), words[1:], projector.LoadConfig, projector.Options{}, &printed, &failed, nil)
		return code, printed.String() + failed.String()
	}
	follow := func() {
		t.Helper()
		next := steps[0]
		steps = steps[1:]
		code, out := run(next)
		require.Zero(t, code, "%s: %s", next.Command, out)
		require.Equal(t, took.ReplaceAllString(next.Output, "built in"), took.ReplaceAllString(out, "built in"), next.Command)
	}

	stopOld := project()
	commit(aggregates * each)
	s.until("version 1 has all events", func() bool { return holds("timeline") })
	follow() // 1
	subscription := servicebus.Subscription{Name: "timeline-v2", Outbound: servicebus.Outbound{RequiresSession: true}}
	require.NoError(t, s.stack.ServiceBus.AddSubscription(stack.Topic, subscription)) // 2
	version, err := mongodb.ServerVersion(t.Context(), model.Client())
	require.NoError(t, err)
	if version.Major < 5 {
		code, out := run(steps[0])
		require.Equal(t, 1, code)
		require.Regexp(t, `^projector: the source is MongoDB 4\.\S+, which cannot read outside of a transaction as of a cluster time: a build needs 5\.0 or later\n$`, out)
		return
	}
	t.Setenv("PROJECTION", "timeline:2")
	t.Setenv("SERVICE_BUS_SUBSCRIPTION", "timeline-v2")
	project() // 3
	t.Setenv("PROJECTION", "timeline")
	t.Setenv("SERVICE_BUS_SUBSCRIPTION", stack.Subscription)
	follow() // 4
	commit(aggregates)
	s.until("both versions have all events", func() bool { return holds("timeline") && holds("timeline_v2") })
	for range 3 { // 5, 6
		follow()
		require.True(t, holds("timeline_current"))
	}
	stopOld() // 7
	require.NoError(t, s.stack.ServiceBus.RemoveSubscription(stack.Topic, stack.Subscription))
	t.Setenv("SETTLE_TIMEOUT", "1s")
	t.Setenv("SHUTDOWN_TIMEOUT", "2s")
	follow()
	commit(aggregates)
	s.until("version 2 goes on", func() bool { return holds("timeline_current") })
	require.Empty(t, steps)
}
