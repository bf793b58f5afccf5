package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/child"
	"github.com/sluice-cdc/sluice/tests/internal/environ"
	"github.com/sluice-cdc/sluice/tests/internal/page"
)

// azdStandIn keeps azd's environment as files; what azd provision and azd deploy do is done by the
// test.
const azdStandIn = `case "$1 $2" in
"env set") printf '%%s' "$4" >%[1]s/env/"$3" ;;
"env get-value") cat %[1]s/env/"$3" ;;
esac`

// azJobsStandIn runs a command as a job: by the program, with the settings of the job's template.
// The tags of a job are in its file's name, caj-projector-VERSION.
const azJobsStandIn = `dir=%[1]s
flag() { want=$1; shift; while [ $# -gt 1 ]; do [ "$1" != "$want" ] || echo "$2"; shift; done; }
case "$*" in
*"resource list"*)
  want=$(printf '%%s' "$*" | sed -n "s/.*sluice-version\"=='\([0-9]*\)'.*/\1/p")
  for job in $dir/jobs/*.json; do
    job=$(basename "$job" .json)
    [ -n "$want" ] && [ "$job" != "caj-projector-$want" ] || printf 'rg-x\t%%s\n' "$job"
  done ;;
*"job show"*) cat "$dir/jobs/$(flag --name "$@").json" ;;
*"job start"*)
  . "$dir/jobs/$(flag --name "$@").env"
  eval "set -- $(sed -n 's/.*"args": \[\(.*\)\],/\1/p' "$(flag --yaml "$@")" | tr , ' ')"
  code=0
  $dir/projector "$@" >$dir/job.out 2>$dir/job.err || code=$?
  echo $code >$dir/job.code
  echo the-execution ;;
*"execution show"*) echo Succeeded ;;
*"blob exists"*) echo true ;;
*"blob download"*) cp "$dir/job.$(flag --name "$@" | sed 's/.*\.//')" "$(flag --file "$@")" ;;
esac`

// deployment is what azd and Azure would do in the procedure, on the embedded servers:
// subscriptions for the versions that are listed, and for each an app and a job with the settings
// that the templates give them.
type deployment struct {
	*testing.T
	dir     string
	servers *emulator.Stack
	images  map[string]string // of the versions
	stop    map[string]func()
}

func (d *deployment) azd(name string) string {
	text, err := os.ReadFile(filepath.Join(d.dir, "env", name))
	require.NoError(d, err)
	return string(text)
}

func (d *deployment) versions() []string { return strings.Split(d.azd("PROJECTION_VERSIONS"), ",") }

// settings returns the settings of a version's containers.
func (d *deployment) settings(version string) map[string]string {
	names, err := os.ReadDir(filepath.Join(d.dir, "env"))
	require.NoError(d, err)
	azd := map[string]string{"version": version}
	for _, name := range names {
		azd[name.Name()] = d.azd(name.Name())
	}
	env := deployedEnv(d.T, "projector", azd)
	for _, name := range []string{"SERVICE_BUS_NAMESPACE", "BLOB_ACCOUNT_URL"} { // by connection strings
		delete(env, name)
	}
	maps.Copy(env, map[string]string{
		"HTTP_ADDR": "", "SETTLE_TIMEOUT": "1s", "SHUTDOWN_TIMEOUT": "2s",
		emulator.EnvMongo: d.servers.Endpoint(emulator.EnvMongo), emulator.EnvServiceBus: d.servers.Endpoint(emulator.EnvServiceBus),
		emulator.EnvBlob: d.servers.Endpoint(emulator.EnvBlob), "SOURCE_MONGODB_URI": d.servers.Endpoint(emulator.EnvMongo),
	})
	return env
}

// provision creates the subscriptions that are missing.
func (d *deployment) provision() {
	for _, version := range d.versions() {
		name := d.settings(version)["SERVICE_BUS_SUBSCRIPTION"]
		if name != emulator.Subscription {
			s := servicebus.Subscription{Name: name, Outbound: servicebus.Outbound{RequiresSession: true}}
			if err := d.servers.ServiceBus.AddSubscription(emulator.Topic, s); err != nil {
				require.ErrorContains(d, err, "exists")
			}
		}
	}
}

// deploy gives each version an app and a job of its image.
func (d *deployment) deploy() {
	newest := d.versions()[len(d.versions())-1]
	image := find(d.T, "app/projector.bicep", "module", "versioned").Value.At("params", "image")
	for _, version := range d.versions() {
		of := evalValue(d.T, "app/projector.bicep", image, map[string]any{
			"version": version, "newest": newest, "image": d.azd("SERVICE_PROJECTOR_IMAGE_NAME"), "previousImage": d.azd("PREVIOUS_PROJECTOR_IMAGE"),
		})
		d.images[version] = fmt.Sprint(of)
		if stop, runs := d.stop[version]; runs {
			stop()
		}
		settings := d.settings(version)
		d.stop[version] = d.project(settings)
		var env []map[string]string
		var exports strings.Builder
		for _, name := range sorted(settings) {
			env = append(env, map[string]string{"name": name, "value": settings[name]})
			fmt.Fprintf(&exports, "export %s='%s'\n", name, settings[name])
		}
		job := map[string]any{"containers": []any{map[string]any{"args": []string{"help"}, "env": env, "image": of}}}
		text, err := json.MarshalIndent(job, "", "  ")
		require.NoError(d, err)
		name := filepath.Join(d.dir, "jobs", "caj-projector-"+version)
		require.NoError(d, os.WriteFile(name+".json", text, 0o600))
		require.NoError(d, os.WriteFile(name+".env", []byte(exports.String()), 0o600))
	}
}

// project runs a projector with the settings.
func (d *deployment) project(settings map[string]string) (stop func()) {
	config, err := environ.Load(settings, projector.LoadConfig)
	require.NoError(d, err)
	return start(d.T, func(ctx context.Context) error {
		return projector.Run(ctx, config, projector.Options{Logger: slog.New(slog.DiscardHandler)})
	})
}

// start runs a service until stop is called or the test ends.
func start(t *testing.T, service func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := service(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(stop)
	return stop
}

// follow runs a command of the page, and does what the stand-ins leave to the test.
func (d *deployment) follow(step page.Step) {
	d.Helper()
	r := run(d.T, d.dir, nil, "bash", "-c", step.Command)
	require.Zero(d, r.code, "%s: %s%s", step.Command, r.out, r.errOut)
	took := regexp.MustCompile(`built in \S+`)
	require.Equal(d, took.ReplaceAllString(step.Output, "built in"), took.ReplaceAllString(r.out, "built in"), "%s: %s", step.Command, r.errOut)
	switch words := strings.Fields(step.Command); {
	case step.Command == "azd provision":
		d.provision()
	case step.Command == "azd deploy projector":
		require.NoError(d, os.WriteFile(filepath.Join(d.dir, "env", "SERVICE_PROJECTOR_IMAGE_NAME"), []byte("crx/projector:2"), 0o600))
		d.deploy()
	case strings.HasPrefix(step.Command, "az containerapp delete"):
		d.stop["1"]()
	case strings.HasPrefix(step.Command, "az servicebus topic subscription delete"):
		require.NoError(d, d.servers.ServiceBus.RemoveSubscription(emulator.Topic, words[len(words)-1]))
	}
}

// G1, G3: the runbook's procedure for a new version is followed word by word, by the scripts and
// the templates, while events are committed: each command prints what the page shows, and readers
// see each event once, in whichever version.
func TestG3TheProcedureForANewVersionInAzureIsFollowed(t *testing.T) {
	t.Parallel()
	steps := page.Steps(t, root+"/infra/README.md", "### A new version of the projection")
	d := &deployment{T: t, dir: t.TempDir(), servers: emulator.Start(t, emulator.Options{}), images: map[string]string{}, stop: map[string]func(){}}
	require.NoError(t, os.Mkdir(filepath.Join(d.dir, "env"), 0o700))
	require.NoError(t, os.Mkdir(filepath.Join(d.dir, "jobs"), 0o700))
	require.NoError(t, child.BuildProgram(t.Context(), "projector/cmd/projector", filepath.Join(d.dir, "projector")))
	standIn(t, d.dir, "azd", fmt.Sprintf(azdStandIn, d.dir))
	standIn(t, d.dir, "az", fmt.Sprintf(azJobsStandIn, d.dir))
	for name, value := range map[string]string{
		"AZURE_RESOURCE_GROUP": "rg-x", "SERVICE_BUS_NAMESPACE": "sb-x.servicebus.windows.net", "SERVICE_BUS_NAMESPACE_NAME": "sb-x",
		"SERVICE_BUS_TOPIC": emulator.Topic, "SERVICE_BUS_SUBSCRIPTION": emulator.Subscription, "SERVICE_BUS_QUEUE": "",
		"BLOB_ACCOUNT_URL": "https://stx.blob.core.windows.net", "BLOB_CONTAINER": "sluice", "CLAIM_CHECK_CONTAINER": "claim-checks",
		"MONGODB_DATABASE": "shop", "MONGODB_COLLECTION": "events", "READ_MODEL_DATABASE": "readmodel",
		"PROJECTION": "", "PROJECTION_VERSIONS": "1", "PREVIOUS_PROJECTOR_IMAGE": "", "SERVICE_PROJECTOR_IMAGE_NAME": "crx/projector:1",
		"SERVICE_PROJECTOR_NAME": "ca-projector-x", "SERVICE_PROJECTOR_JOB_NAME": "caj-projector-x", "WATCH_JOB_NAME": "caj-watch-x",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(d.dir, "env", name), []byte(value), 0o600))
	}

	client, err := mongo.Connect(options.Client().ApplyURI(d.servers.Endpoint(emulator.EnvMongo)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.WithoutCancel(t.Context())) })
	events, model := client.Database("shop").Collection("events"), client.Database("readmodel")
	_, err = events.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: bson.D{{Key: "aggregateId", Value: 1}, {Key: "version", Value: 1}}})
	require.NoError(t, err)
	const aggregates, each = 30, 20
	version := 0
	commit := func(rounds int) {
		for range rounds {
			version++
			var documents []any
			for i := range aggregates {
				documents = append(documents, bson.D{
					{Key: "aggregateId", Value: fmt.Sprintf("a%02d", i)},
					{Key: "version", Value: version},
					{Key: "type", Value: "Counted"},
					{Key: "occurredAt", Value: fmt.Sprint(version)},
				})
			}
			_, err := events.InsertMany(t.Context(), documents)
			require.NoError(t, err)
		}
	}
	holds := func(collection string) bool {
		n, err := model.Collection(collection).CountDocuments(t.Context(), bson.D{{Key: "events", Value: version}})
		require.NoError(t, err)
		return n == aggregates
	}
	until := func(what string, collections ...string) {
		t.Helper()
		require.Eventually(t, func() bool {
			for _, c := range collections {
				if !holds(c) {
					return false
				}
			}
			return true
		}, 30*time.Second, 20*time.Millisecond, what)
	}

	d.publish()
	d.deploy()
	commit(each)
	until("version 1 has all events", "timeline")
	for _, step := range steps {
		d.follow(step)
		switch {
		case step.Command == "azd deploy projector":
			require.Equal(t, map[string]string{"1": "crx/projector:1", "2": "crx/projector:2"}, d.images)
			require.False(t, holds("timeline_v2"), "nothing is applied before the build")
		case strings.HasSuffix(step.Command, " build"):
			commit(1)
			until("both versions have all events", "timeline", "timeline_v2")
		case strings.Contains(step.Command, " switch "):
			require.True(t, holds("timeline_current"), step.Command)
		}
	}
	commit(1)
	until("version 2 goes on", "timeline_current")
	names, err := model.ListCollectionNames(t.Context(), bson.D{{Key: "name", Value: "timeline"}})
	require.NoError(t, err)
	require.Empty(t, names)
}

// publish runs a producer, and returns once its stream has a checkpoint.
func (d *deployment) publish() {
	config, err := environ.Load(map[string]string{
		"MONGODB_DATABASE": "shop", "MONGODB_COLLECTION": "events", "SERVICE_BUS_TOPIC": emulator.Topic, "OPERATIONS": "insert", "HTTP_ADDR": "",
		emulator.EnvMongo: d.servers.Endpoint(emulator.EnvMongo), emulator.EnvServiceBus: d.servers.Endpoint(emulator.EnvServiceBus),
		emulator.EnvBlob: d.servers.Endpoint(emulator.EnvBlob),
	}, producer.LoadConfig)
	require.NoError(d, err)
	start(d.T, func(ctx context.Context) error {
		return producer.Run(ctx, config, producer.Options{Logger: slog.New(slog.DiscardHandler)})
	})
	require.Eventually(d, func() bool {
		load := func() ([]producer.Config, error) { return []producer.Config{config}, nil }
		return producer.Execute(d.Context(), []string{"token", "show"}, load, producer.Options{}, io.Discard, io.Discard, nil) == 0
	}, 30*time.Second, 20*time.Millisecond, "the stream has a checkpoint")
}
