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

// lookEvery is the time between two looks at an instance, and between two commands of an operator: they read what the
// services write, and are not to take all of the machine.
const lookEvery = 100 * time.Millisecond

// scrape reads everything that an instance tells of itself, again and again, until it is asked to stop.
func (i *instance) scrape() {
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	told := map[string]int64{} // counters by their names
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
				return // it may close its port at any time
			case err != nil:
				i.w.Errorf("%s: %v", i.name, err)
				return
			case code != http.StatusOK && path != "/readyz":
				i.w.Errorf("%s: GET %s: %d: %s", i.name, path, code, body)
			case path == "/metrics" && !strings.Contains(body, "\nsluice_"+i.kind+"_"):
				i.w.Errorf("%s: no metric of its own among:\n%s", i.name, body)
			case path == "/status":
				i.read(body, told)
			}
		}
	}
}

// read reads a status. Its counters never go back.
func (i *instance) read(body string, told map[string]int64) {
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
		if n < told[name] {
			i.w.Errorf("%s: %s went back from %d to %d", i.name, name, told[name], n)
		}
		told[name] = n
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

// question is a command that reads.
type question struct {
	of   string // producer or projector
	args string
	code int // its exit code while nothing is wrong
}

// questions are those of this world.
func (w *world) questions() []question {
	all := []question{
		{"projector", "status --json", commandline.ExitOK},
		{"projector", "parked list --json", commandline.ExitOK},
		{"projector", "doctor --json", commandline.ExitProblem}, // it finds the lock short, as it is here
	}
	for _, stream := range w.streams() {
		for _, args := range []string{"status --json", "token show", "doctor --json"} {
			all = append(all, question{"producer", args + " --stream " + stream, commandline.ExitOK})
		}
	}
	if len(w.settings.Collections) == 1 && !w.parked() { // what was given up is a difference
		all = append(all, question{"projector", "verify --sample 20 --wait 1m --json", commandline.ExitOK})
	}
	return all
}

// operate gives the commands that read, one after the other, until there are enough events. While services are cut off, a
// command may say that it could not do it.
func (w *world) operate() {
	w.outside.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for n := 0; !w.enough.Load(); n++ {
			all := w.questions()
			q := all[n%len(all)]
			if strings.HasPrefix(q.args, "verify") {
				continue // what goes on meanwhile would be a difference
			}
			if code, said := w.command(q.of, strings.Fields(q.args)...); code == commandline.ExitUsage {
				w.Errorf("%s %s: exit code %d: %s", q.of, q.args, code, said)
			}
			<-tick.C
		}
	})
}

// ask gives every command that reads once. Nothing is wrong.
func (w *world) ask() {
	w.Helper()
	for _, q := range w.questions() {
		code, said := w.answer(q.of, q.args)
		require.Equal(w, q.code, code, "%s %s\n%s", q.of, q.args, said)
	}
}

// succeeds gives a command, which succeeds.
func (w *world) succeeds(of, args string) {
	w.Helper()
	code, said := w.answer(of, args)
	w.tell("%s %s: exit code %d", of, args, code)
	require.Equal(w, commandline.ExitOK, code, said)
}

// answer gives a command again for as long as it says that its time is over: a command waits ten seconds for an answer, and a machine
// with other work may not do anything here for as long.
func (w *world) answer(of, args string) (code int, said string) {
	w.Helper()
	w.until(of+" "+args+" is answered in its time", func() bool {
		code, said = w.command(of, strings.Fields(args)...)
		if code != commandline.ExitProblem || !strings.Contains(said, context.DeadlineExceeded.Error()) {
			return true
		}
		w.tell("%s %s is asked again: %s", of, args, said)
		return false
	})
	return code, said
}

// command runs one command, past every network.
func (w *world) command(of string, args ...string) (code int, said string) {
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
