package sockets_test

import (
	"bytes"
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/page"
	"github.com/sluice-cdc/sluice/tests/internal/stack"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// took matches what differs between the outputs of two runs.
var took = regexp.MustCompile(`built in \S+`)

// procedure follows a section of docs/build.md word by word, with its commands in this process.
type procedure struct {
	*realStack
	steps []page.Step
}

const aggregates, each = 30, 20

// procedureOf reads a section.
func procedureOf(t *testing.T, heading string) *procedure {
	t.Helper()
	sideBySide(t)
	s := newRealStack(t, false)
	s.settings["PROJECTION"] = "timeline"
	return &procedure{s, page.Steps(t, "../../../docs/build.md", heading)}
}

// lead starts a producer, and waits until its stream has a position.
func (p *procedure) lead() {
	p.Helper()
	p.start("a")
	p.until("the stream has a checkpoint", func() bool { return p.checkpoint().Position != "" })
}

// execute runs a command of the page.
func (p *procedure) execute(next page.Step) (code int, out string) {
	words := strings.Fields(next.Command)
	own := *p.realStack
	own.settings = maps.Clone(p.settings)
	for ; strings.Contains(words[0], "="); words = words[1:] {
		name, value, _ := strings.Cut(words[0], "=")
		own.settings[name] = value
	}
	require.Equal(p, "projector", words[0])
	_, config := own.configured()
	load := func() (projector.Config, error) { return config, nil }
	var printed, failed bytes.Buffer
	code = projector.Execute(p.Context(), words[1:], load, projector.Options{}, &printed, &failed, nil)
	return code, printed.String() + failed.String()
}

// follow runs the next command of the page, which prints what the page shows.
func (p *procedure) follow() {
	p.Helper()
	next := p.steps[0]
	p.steps = p.steps[1:]
	code, out := p.execute(next)
	require.Zero(p, code, "%s: %s", next.Command, out)
	require.Equal(p, took.ReplaceAllString(next.Output, "built in"), took.ReplaceAllString(out, "built in"), next.Command)
}

// refused reports whether the source is too old for a build, whose command explains it.
func (p *procedure) refused() bool {
	p.Helper()
	if p.readsThePast() {
		return false
	}
	code, out := p.execute(p.steps[0])
	require.Equal(p, 1, code)
	require.Regexp(p, `^projector: the source is MongoDB 4\.\S+, which cannot read outside of a transaction as of a cluster time: a build needs 5\.0 or later\n$`, out)
	return true
}

// G1, G3: the documented procedure for a collection that is full already is followed word by word:
// its events and those that are committed meanwhile are in the read model once.
func TestG3TheProcedureForAFullCollectionIsFollowed(t *testing.T) {
	p := procedureOf(t, "## The first read model of a full collection")
	p.commit(aggregates*each, aggregates)
	world.CreateIndex(t, p.events, "aggregateId", "version") // 1
	p.lead()
	if p.refused() { // 2: the stack has the subscription
		return
	}
	p.follow() // 3
	p.commit(aggregates, aggregates)
	p.project() // 4
	p.until("the read model has all events", func() bool { return p.holds("timeline") })
	p.follow()
	require.Empty(t, p.steps)
}

// G1, G3: the documented procedure for a new version is followed word by word, while events are
// committed: each command prints what the page shows, and readers see each event once, in whichever
// version.
func TestG3TheProcedureForANewVersionIsFollowed(t *testing.T) {
	p := procedureOf(t, "## A new version of a projection")
	world.CreateIndex(t, p.events, "aggregateId", "version")
	p.lead()
	stopOld := p.project()
	p.commit(aggregates*each, aggregates)
	p.until("version 1 has all events", func() bool { return p.holds("timeline") })
	p.follow() // 1
	subscription := servicebus.Subscription{Name: "timeline-v2", Outbound: servicebus.Outbound{RequiresSession: true}}
	require.NoError(t, p.stack.ServiceBus.AddSubscription(stack.Topic, subscription)) // 2
	if p.refused() {
		return
	}
	p.settings["PROJECTION"], p.settings["SERVICE_BUS_SUBSCRIPTION"] = "timeline:2", "timeline-v2"
	p.project() // 3
	p.settings["PROJECTION"], p.settings["SERVICE_BUS_SUBSCRIPTION"] = "timeline", stack.Subscription
	p.follow() // 4
	p.commit(aggregates, aggregates)
	p.until("both versions have all events", func() bool { return p.holds("timeline") && p.holds("timeline_v2") })
	for range 3 { // 5, 6
		p.follow()
		require.True(t, p.holds("timeline_current"))
	}
	stopOld() // 7
	require.NoError(t, p.stack.ServiceBus.RemoveSubscription(stack.Topic, stack.Subscription))
	p.settings["SETTLE_TIMEOUT"], p.settings["SHUTDOWN_TIMEOUT"] = "1s", "2s"
	p.follow()
	p.commit(aggregates, aggregates)
	p.until("version 2 goes on", func() bool { return p.holds("timeline_current") })
	require.Empty(t, p.steps)
}
