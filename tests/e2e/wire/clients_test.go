//go:build !race || go1.27

package wire_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// To record again: tests/emulator/scripts/clients.sh installs the clients, and then go test
// ./tests/e2e/wire -run TestRecordedFramesOfTheClients -record.
var record = flag.Bool("record", false, "record the frames of the official JavaScript, Python and Java clients again")

// programs are the commands that are recorded for each client, by its name, from tests/e2e/wire.
var programs = map[string]func(t *testing.T) *exec.Cmd{
	"javascript": func(t *testing.T) *exec.Cmd {
		modules, err := filepath.Abs("../../clients/javascript/node_modules")
		require.NoError(t, err)
		cmd := exec.CommandContext(t.Context(), "node", "testdata/record.js")
		cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
		return cmd
	},
	"python": func(t *testing.T) *exec.Cmd {
		interpreter, err := os.ReadFile("../../clients/python/.interpreter")
		require.NoError(t, err)
		return exec.CommandContext(t.Context(), strings.TrimSpace(string(interpreter)), "testdata/record.py") //nolint:gosec // installed by tests/emulator/scripts/clients.sh
	},
	"java": func(t *testing.T) *exec.Cmd {
		packages, err := os.ReadFile("../../clients/java/.classpath")
		require.NoError(t, err)
		return exec.CommandContext(t.Context(), "java", "-cp", filepath.Join(strings.TrimSpace(string(packages)), "*"), "testdata/Record.java") //nolint:gosec // likewise
	},
}

// overhears records what clients send on the connections that it accepts.
type overhears struct {
	net.Listener
	*recorder
}

func (o overhears) Accept() (net.Conn, error) {
	c, err := o.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return overheard{c, o.connected()}, nil
}

type overheard struct {
	net.Conn
	sent *world.Recorder
}

func (c overheard) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	_, _ = c.sent.Write(b[:n]) // it never fails
	return n, err
}

// recordClient runs the program of a client against an embedded Service Bus, and returns its
// frames.
func recordClient(t *testing.T, program func(t *testing.T) *exec.Cmd) summary {
	t.Helper()
	bus, err := servicebus.New(servicebus.Config{Topics: []servicebus.Topic{{Name: world.Topic, Subscriptions: []servicebus.Subscription{{
		Name: world.Subscription, Outbound: servicebus.Outbound{RequiresSession: true, LockDuration: time.Minute},
	}}}}}, servicebus.Options{})
	require.NoError(t, err)
	frames := &recorder{}
	addr := netpipe.ServeTCP(t, func(ctx context.Context, l net.Listener) error { return bus.Run(ctx, overhears{l, frames}) })
	cmd := program(t)
	cmd.Env = append(cmd.Environ(), "SERVICE_BUS_CONNECTION_STRING="+servicebus.ConnectionString(addr),
		"SERVICE_BUS_TOPIC="+world.Topic, "SERVICE_BUS_SUBSCRIPTION="+world.Subscription)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return summarize(frames.shapes(t))
}

// text returns a summary as it is kept in a file: an operation, and a line for each path with its
// values.
func (s summary) text() string {
	var b strings.Builder
	for _, operation := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "%s\n", operation)
		for _, path := range slices.Sorted(maps.Keys(s[operation])) {
			fmt.Fprintf(&b, "\t%s: %s\n", path, s[operation][path])
		}
	}
	return b.String()
}

// readSummary reads the form of text.
func readSummary(t *testing.T, path string) summary {
	t.Helper()
	text, err := os.ReadFile(path) //nolint:gosec // of testdata
	require.NoError(t, err)
	s, operation := summary{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		field, of := strings.CutPrefix(line, "\t")
		if !of {
			operation = line
			s[operation] = map[string]string{}
			continue
		}
		at := strings.LastIndex(field, ": ")
		require.Positive(t, at, "%s: %q", path, line)
		s[operation][field[:at]] = field[at+2:]
	}
	return s
}

func TestRecordedFramesOfTheClients(t *testing.T) {
	if !*record {
		t.Skip("-record records them again")
	}
	for name, program := range programs {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile("testdata/"+name+".txt", []byte(recordClient(t, program).text()), 0o600))
		})
	}
}

// The test compares our frames with the recorded ones of the official JavaScript, Python and Java
// clients, field by field. Every difference must be in clientDifferences, and every one of those
// must occur.
func TestOurFramesMatchOtherOfficialClients(t *testing.T) {
	clients := map[string]summary{}
	for name := range programs {
		clients[name] = readSummary(t, "testdata/"+name+".txt")
	}
	world.InVirtualTime(t, world.Options{Bus: servicebus.Options{Ask: 10 * time.Second}}, func(w *world.World) {
		goClient, ours := &recorder{way: w.BusNet}, &recorder{way: w.BusNet}
		official(w, goClient)
		own(w, ours)
		ofGo, our := compare(summarize(goClient.shapes(t)), summarize(ours.shapes(t))), summarize(ours.shapes(t))
		differ, how := map[string][]string{}, map[string]string{}
		for _, name := range slices.Sorted(maps.Keys(clients)) {
			for what, difference := range compare(clients[name], our) {
				differ[what] = append(differ[what], name)
				how[what] += name + ": " + difference + "; "
			}
		}
		listed := map[string]bool{}
		for _, group := range clientDifferences {
			require.NotEmpty(t, group.reason)
			for _, field := range group.fields {
				names, what, _ := strings.Cut(field, ": ")
				listed[what] = true
				if found := strings.Join(differ[what], ","); found != names {
					t.Errorf("%s: listed as a difference from %s, and it is one from %q: %s", what, names, found, how[what])
				}
				if group.asGo && ofGo[what] != "" {
					t.Errorf("%s: %s", what, ofGo[what])
				}
			}
		}
		for _, what := range slices.Sorted(maps.Keys(how)) {
			if !listed[what] {
				t.Errorf("%s: %s, and there is no reason for it in the list", what, how[what])
			}
		}
	})
}
