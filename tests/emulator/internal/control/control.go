// Package control injects faults into the embedded servers over HTTP, so that a program in any
// language can do what a Go test does by their methods.
//
// A fault is a POST to its path, with its parameters in the query; GET / lists them. An invalid
// request is answered with 400 and a sentence that explains how to correct it.
package control

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator"
)

// harm is one fault. do returns how many operations it affected, if that is known.
type harm struct {
	path, parameters, what string

	do func(*emulator.Stack, *arguments) any
}

// harms returns the faults in the order in which they are listed.
func harms() []harm {
	return []harm{
		{"mongodb/drop-connections", "", "every connection is cut", func(s *emulator.Stack, _ *arguments) any { s.Mongo.DropConnections(); return nil }},
		{"mongodb/kill-cursors", "", "every cursor is forgotten: getMore answers CursorNotFound", func(s *emulator.Stack, _ *arguments) any { s.Mongo.KillCursors(); return nil }},
		{"mongodb/lose-replies", "command=insert&n=1", "the next n of a command take effect, and their connection is cut in place of the reply", func(s *emulator.Stack, a *arguments) any {
			if command, n := a.text("command"), a.count("n"); a.fine() {
				s.Mongo.LoseReplies(command, n)
			}
			return nil
		}},
		{"mongodb/step-down", "for=10s", "the server is no primary", func(s *emulator.Stack, a *arguments) any {
			if d := a.duration("for"); a.fine() {
				s.Mongo.StepDown(d)
			}
			return nil
		}},
		{"servicebus/detach-links", "entity=changes", "every link to an entity, or to what is under it, is detached", func(s *emulator.Stack, a *arguments) any {
			if entity := a.text("entity"); a.fine() {
				return s.ServiceBus.DetachLinks(entity)
			}
			return nil
		}},
		{"servicebus/drop-connections", "", "every connection is cut", func(s *emulator.Stack, _ *arguments) any { s.ServiceBus.DropConnections(); return nil }},
		{"servicebus/expire-locks", "entity=changes/Subscriptions/projector", "every lock on an entity's messages and sessions runs out", func(s *emulator.Stack, a *arguments) any {
			if entity := a.text("entity"); a.fine() {
				return s.ServiceBus.ExpireLocks(entity)
			}
			return nil
		}},
		{"servicebus/lose-acknowledgements", "n=1", "the next n sends are stored, and their connection is cut in place of the answer", func(s *emulator.Stack, a *arguments) any {
			if n := a.count("n"); a.fine() {
				s.ServiceBus.LoseAcknowledgements(n)
			}
			return nil
		}},
		{"servicebus/refuse-sends", "entity=changes&n=1", "the next n sends are refused with server-busy", func(s *emulator.Stack, a *arguments) any {
			if entity, n := a.text("entity"), a.count("n"); a.fine() {
				a.refused(s.ServiceBus.RefuseSends(entity, n))
			}
			return nil
		}},
		{"blob/fail", "status=503&for=5s", "every request is answered with a status", func(s *emulator.Stack, a *arguments) any {
			if status, d := a.count("status"), a.duration("for"); a.fine() {
				s.Blob.Fail(status, d)
			}
			return nil
		}},
	}
}

// chance is the path for random faults: the body of POST /servicebus/faults describes them and
// replaces those before.
const chance = "servicebus/faults"

// Handler serves the faults for the servers of a stack.
func Handler(s *emulator.Stack) http.Handler {
	mux := http.NewServeMux()
	for _, h := range harms() {
		mux.HandleFunc("POST /"+h.path, func(w http.ResponseWriter, r *http.Request) {
			a := &arguments{harm: h, values: r.URL.Query()}
			a.known()
			struck := h.do(s, a)
			answer(w, a.problems, struck)
		})
	}
	faults := &faults{server: s.ServiceBus, end: func() {}}
	mux.HandleFunc("POST /"+chance, faults.replace)
	mux.HandleFunc("DELETE /"+chance, faults.remove)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			w.WriteHeader(http.StatusNotFound)
		}
		list(w)
	})
	return mux
}

func list(w http.ResponseWriter) {
	for _, h := range harms() {
		query := ""
		if h.parameters != "" {
			query = "?" + h.parameters
		}
		fmt.Fprintf(w, "POST /%s%s\n    %s\n", h.path, query, h.what)
	}
	fmt.Fprintf(w, "POST /%s with %s\n    what goes wrong by chance from now on; DELETE ends it\n", chance,
		`{"Seed":1,"Send":{"Busy":0.1,"LoseAck":0.05},"Receive":{"Detach":0.01},"LoseLock":0.02}`)
}

func answer(w http.ResponseWriter, problems []string, struck any) {
	if len(problems) > 0 {
		http.Error(w, strings.Join(problems, "\n"), http.StatusBadRequest)
		return
	}
	if struck == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	fmt.Fprintln(w, struck)
}

// arguments are the parameters of a request, and the problems found in them.
type arguments struct {
	harm     harm
	values   url.Values
	problems []string
}

func (a *arguments) problem(format string, args ...any) {
	a.problems = append(a.problems, fmt.Sprintf(format, args...)+": write POST /"+a.harm.path+"?"+a.harm.parameters)
}

// known refuses unknown parameters: a misspelt one would silently do nothing.
func (a *arguments) known() {
	want, _ := url.ParseQuery(a.harm.parameters) // the parameters are fixed texts
	for name := range a.values {
		if !want.Has(name) {
			a.problem("%q is no parameter of %s", name, a.harm.path)
		}
	}
}

func (a *arguments) fine() bool { return len(a.problems) == 0 }

func (a *arguments) refused(err error) {
	if err != nil {
		a.problem("%v", err)
	}
}

func (a *arguments) text(name string) string {
	text := a.values.Get(name)
	if text == "" {
		a.problem("%s is missing", name)
	}
	return text
}

func (a *arguments) count(name string) int {
	n, err := strconv.Atoi(a.values.Get(name))
	if err != nil || n < 0 {
		a.problem("%s=%q is no number from 0", name, a.values.Get(name))
	}
	return n
}

func (a *arguments) duration(name string) time.Duration {
	d, err := time.ParseDuration(a.values.Get(name))
	if err != nil || d < 0 {
		a.problem("%s=%q is no duration such as 5s", name, a.values.Get(name))
	}
	return d
}
