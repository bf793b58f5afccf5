package sim

import (
	"bytes"
	"context"
	"io"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/tests/sim/internal/network"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// produce runs one of the producer's operator commands, over links without faults.
func (w *world) produce(args ...string) (code int, said string) {
	var out bytes.Buffer
	load := func() ([]producer.Config, error) { return w.producerConfigs(), nil }
	run := func(context.Context, []producer.Config) error {
		w.Error("the command ran the producer")
		return nil
	}
	link := network.NewBlobLink(checkpointWitness{w, w.blob.Transport()})
	code = producer.Execute(w.Context(), args, load, producer.Options{
		Logger: w.logger("operator"), Instance: "operator", ServiceBus: busOptions(network.NewLink(w.busHub)),
		Blob:  blobOptions(w.recorded(senderSide{w, link})),
		Mongo: func(o *options.ClientOptions) { o.SetDialer(network.NewLink(w.mongoHub)) },
		Store: w.storeOver(network.NewLink(w.mongoHub)),
	}, &out, &out, run)
	w.trace.add("producer %s: exit code %d\n%s", strings.Join(args, " "), code, strings.TrimSpace(out.String()))
	return code, out.String()
}

// rewind has the operator rewind the checkpoint of a stream, whichever replica leads: everything
// since is published again, under new message ids, and has no effect. While storage or MongoDB is
// unavailable it is retried a few times.
func (w *world) rewind(step plan.Step) {
	to := time.Now().Add(-step.For.Duration)
	if to.Before(w.began) {
		to = w.began
	}
	for range 10 {
		// A moment is given in whole seconds, and that in which the stream began is the first
		// possible one.
		code, _ := w.produce("token", "rewind", "--force", "--stream", step.Stream, "--to", to.UTC().Truncate(time.Second).Add(time.Second).Format(time.RFC3339))
		if code == commandline.ExitOK {
			w.met.add("checkpoints taken back", 1)
			return
		}
		pause(w.Context(), 2*time.Second)
	}
	w.trace.add("%s is not taken back", step.Stream)
}

// storedText returns the text of an object beside the checkpoints.
func (w *world) storedText(name string) ([]byte, error) {
	if w.plan.Settings.Store != "" {
		object, err := w.store.Get(w.Context(), name)
		return object.Data, err
	}
	response, err := w.blobs.DownloadStream(w.Context(), container, name, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	return io.ReadAll(response.Body)
}
