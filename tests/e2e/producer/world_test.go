package producer_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// adjustment changes the settings of a producer, or of its commands.
type adjustment = func(*producer.Config, *producer.Options)

// subtest runs f as a subtest, in a world of its own.
func subtest(t *testing.T, name string, o world.Options, f func(w *world.World)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { world.InVirtualTime(t, o, f) })
}

// startLeader runs a producer, and waits until it leads.
func startLeader(w *world.World, instance string, change adjustment) *world.Producer {
	w.Helper()
	p := w.StartProducer(instance, change)
	w.Leads(instance)
	return p
}

// startAndPublish is like startLeader, with n events that are published.
func startAndPublish(w *world.World, instance string, change adjustment, n, aggregates int) *world.Producer {
	w.Helper()
	p := startLeader(w, instance, change)
	w.InsertMany(n, aggregates)
	w.Published()
	return p
}

// ran runs a leader for a while and stops it, so that the stream has a checkpoint.
func ran(w *world.World) {
	w.Helper()
	startAndPublish(w, "past", nil, 10, 2).End()
}

// checkpointed waits until so many events are published, according to the checkpoint.
func checkpointed(w *world.World, n int) {
	w.Helper()
	w.Eventually(fmt.Sprintf("the checkpoint has %d events", n), func() bool { return w.Checkpoint().Published == int64(n) })
}

// judgeEpochs requires that nothing of an older leader arrives once a newer one has published.
func judgeEpochs(w *world.World) {
	w.Helper()
	var highest int64
	for _, a := range w.Took() {
		epoch := a.Properties[envelope.PropEpoch].(int64)
		require.GreaterOrEqual(w, epoch, highest)
		highest = max(highest, epoch)
	}
}

// interrupted commits in twenty rounds, with one random harm in each, and ends the producers once
// the checkpoint covers everything.
func interrupted(w *world.World, random *rand.Rand, producers []*world.Producer, commit func(round int)) {
	w.Helper()
	for round := range 20 {
		commit(round)
		w.Pass(time.Duration(random.IntN(1500)) * time.Millisecond)
		interrupt(w, random, producers[random.IntN(len(producers))])
	}
	for _, p := range producers {
		p.ComeBack()
	}
	checkpointed(w, w.Total())
	for _, p := range producers {
		p.End()
	}
	judgeEpochs(w)
}

// interrupt does one random harm to a server or to this producer, or brings the producer back.
func interrupt(w *world.World, random *rand.Rand, p *world.Producer) {
	w.Helper()
	switch random.IntN(9) {
	case 0:
		w.Bus.DropConnections()
	case 1:
		w.DropMongo()
	case 2:
		w.Mongo.KillCursors()
	case 3:
		w.Mongo.StepDown(time.Duration(random.IntN(3000)) * time.Millisecond)
		w.Eventually("MongoDB is primary again", func() bool { return w.Events.FindOne(w.Context(), bson.D{}).Err() == nil })
	case 4:
		w.Blob.Fail(503, time.Duration(random.IntN(8000))*time.Millisecond)
	case 5:
		w.Bus.LoseAcknowledgements(1 + random.IntN(3))
	case 6:
		require.NoError(w, w.Bus.RefuseSends(world.Topic, 1+random.IntN(4)))
	case 7:
		p.Vanish()
	case 8:
		p.ComeBack()
	}
}

// transport is a function as a transport of HTTP.
type transport func(r *http.Request) (*http.Response, error)

func (t transport) Do(r *http.Request) (*http.Response, error) { return t(r) }

// throughStorage passes the requests to Blob storage through do.
func throughStorage(do func(r *http.Request, next policy.Transporter) (*http.Response, error)) adjustment {
	return func(_ *producer.Config, o *producer.Options) {
		next := o.Blob.Transport
		o.Blob.Transport = transport(func(r *http.Request) (*http.Response, error) { return do(r, next) })
	}
}

// failure returns an Azure service's answer to a request that fails.
func failure(r *http.Request, status int, code string) *http.Response {
	return &http.Response{
		Status: fmt.Sprint(status, " ", http.StatusText(status)), StatusCode: status, Request: r, Body: http.NoBody,
		Header: http.Header{"X-Ms-Error-Code": {code}},
	}
}
