package live

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/internal/stack"
)

// scrapeEvery is the time between two scrapes of an instance, and between two commands of an
// operator: they must leave the machine some time for other work.
const scrapeEvery = 100 * time.Millisecond

// scrape reads everything that an instance serves, again and again, until the instance is asked to
// stop.
func (i *instance) scrape() {
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(scrapeEvery)
	defer tick.Stop()
	seen := map[string]int64{} // counters by name
	for {
		select {
		case <-i.done:
			return
		case <-tick.C:
		}
		addr := i.log.address()
		if addr == "" {
			continue
		}
		for _, path := range []string{"/livez", "/readyz", "/metrics", "/status"} {
			code, body, err := get(client, "http://"+addr+path)
			switch {
			case i.asked.Load():
				return // the instance may close its port at any time
			case err != nil:
				i.w.Errorf("%s: %v", i.name, err)
				return
			case code != http.StatusOK && path != "/readyz":
				i.w.Errorf("%s: GET %s: %d: %s", i.name, path, code, body)
			case path == "/metrics" && !strings.Contains(body, "\nsluice_"+i.kind+"_"):
				i.w.Errorf("%s: no metric of the service in:\n%s", i.name, body)
			case path == "/status":
				i.read(body, seen)
			}
		}
	}
}

// read parses a status. Its counters never decrease.
func (i *instance) read(body string, seen map[string]int64) {
	counters := map[string]int64{}
	var err error
	if i.kind == "projector" {
		var s projector.Status
		err = json.Unmarshal([]byte(body), &s)
		counters["applied"], counters["duplicates"], counters["dead-lettered"] = s.Applied, s.Duplicates, s.DeadLettered
	} else {
		var of struct{ Streams []producer.Status }
		if err = json.Unmarshal([]byte(body), &of); len(of.Streams) == 0 {
			of.Streams = make([]producer.Status, 1)
			err = json.Unmarshal([]byte(body), &of.Streams[0])
		}
		for _, s := range of.Streams {
			counters["published of "+s.Stream], counters["epoch of "+s.Stream] = s.Published, s.Epoch
		}
	}
	if err != nil {
		i.w.Errorf("%s: read its status: %v\n%s", i.name, err, body)
	}
	for name, n := range counters {
		if n < seen[name] {
			i.w.Errorf("%s: %s decreased from %d to %d", i.name, name, seen[name], n)
		}
		seen[name] = n
	}
}

func get(client *http.Client, url string) (code int, body string, err error) {
	response, err := client.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// question is a command that only reads.
type question struct {
	of   string // producer or projector
	args string
	code int // the exit code while nothing is wrong
}

// questions returns the commands that fit this world.
func (w *world) questions() []question {
	all := []question{
		{"projector", "status --json", commandline.ExitOK},
		{"projector", "parked list --json", commandline.ExitOK},
		{"projector", "doctor --json", commandline.ExitProblem}, // it reports that the lock is short, which is so here
	}
	for _, stream := range w.streams() {
		for _, args := range []string{"status --json", "token show", "doctor --json"} {
			all = append(all, question{"producer", args + " --stream " + stream, commandline.ExitOK})
		}
	}
	if len(w.settings.Collections) == 1 && !w.parked() { // a dropped event is a difference
		all = append(all, question{"projector", "verify --sample 20 --wait 1m --json", commandline.ExitOK})
	}
	return all
}

// operate runs the commands that only read, one after the other, until there are enough events.
// While services are cut off, a command may fail.
func (w *world) operate() {
	w.outside.Go(func() {
		tick := time.NewTicker(scrapeEvery)
		defer tick.Stop()
		for n := 0; !w.enough.Load(); n++ {
			all := w.questions()
			q := all[n%len(all)]
			if strings.HasPrefix(q.args, "verify") {
				continue // what the services change meanwhile would be a difference
			}
			if code, printed := w.command(q.of, strings.Fields(q.args)...); code == commandline.ExitUsage {
				w.Errorf("%s %s: exit code %d: %s", q.of, q.args, code, printed)
			}
			<-tick.C
		}
	})
}

// ask runs every command once while nothing is wrong.
func (w *world) ask() {
	w.Helper()
	for _, q := range w.questions() {
		code, printed := w.answer(q.of, q.args)
		require.Equal(w, q.code, code, "%s %s\n%s", q.of, q.args, printed)
	}
}

// succeeds runs a command that must succeed.
func (w *world) succeeds(of, args string) {
	w.Helper()
	code, printed := w.answer(of, args)
	w.trace("%s %s: exit code %d", of, args, code)
	require.Equal(w, commandline.ExitOK, code, printed)
}

// answer repeats a command while it reports that it ran out of time: a command waits ten seconds
// for an answer, and a busy machine may make no progress for that long.
func (w *world) answer(of, args string) (code int, printed string) {
	w.Helper()
	w.until(of+" "+args+" is answered in time", func() bool {
		code, printed = w.command(of, strings.Fields(args)...)
		if code != commandline.ExitProblem || !strings.Contains(printed, context.DeadlineExceeded.Error()) {
			return true
		}
		w.trace("%s %s runs again: %s", of, args, printed)
		return false
	})
	return code, printed
}

// command runs one command, past every network.
func (w *world) command(of string, args ...string) (code int, printed string) {
	var out bytes.Buffer
	bus, blobs := stack.Host(w.stack.Endpoint(emulator.EnvServiceBus)), stack.Host(w.stack.Endpoint(emulator.EnvBlob))
	if of == "producer" {
		load := func() ([]producer.Config, error) { return w.producing(bus, blobs), nil }
		code = producer.Execute(w.Context(), args, load, producer.Options{Instance: "desk", Blob: w.storing()}, &out, &out, func(context.Context, []producer.Config) error {
			panic("the command ran the producer")
		})
		return code, out.String()
	}
	load := func() (projector.Config, error) { return w.projecting(bus, blobs), nil }
	code = projector.Execute(w.Context(), args, load, projector.Options{Instance: "desk", Projections: w.settings.Projections}, &out, &out,
		func(context.Context, projector.Config) error { panic("the command ran the projector") })
	return code, out.String()
}
