package pipeline_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/tests/emulator/blob"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// hostileText are texts that mean something to a query, an update, a path, a header, a log or a
// terminal.
var hostileText = []string{
	"", " ", "$gt", "$$ROOT", "a.b", ".", "a..b", "$a.b", "%", "%24", "_id", "_sluice", "nul\x00nul", "\r\nSession-Id: other", "\x1b[2J\x07\x9b",
	"\u202emoc\u2028", "bad \xff\xfe utf-8", "\xed\xa0\x80", `{"$ref":1}`, "'; drop", "\ufeff", strings.Repeat("é", 1<<19),
}

// hostileValues returns values of every type of BSON, equal numbers that are written differently,
// and documents that read as operators.
func hostileValues() (all []any) {
	for _, text := range hostileText {
		all = append(all, text)
	}
	return append(all,
		nil, true, 7, int64(7), 7.0, decimal("7"), decimal("7.00"), int64(1)<<53+1, math.MinInt64, 1e308, math.Inf(-1), math.NaN(), math.Copysign(0, -1),
		decimal("NaN"), decimal("9.999999999999999999999999999999999E+6144"), bson.Undefined{}, bson.MinKey{}, bson.MaxKey{}, bson.Timestamp{}, bson.Timestamp{T: 1, I: 2},
		bson.DateTime(math.MinInt64), bson.DateTime(math.MaxInt64), bson.NewObjectID(), bson.Regex{Pattern: "^(a+)+$", Options: "i"}, bson.Symbol("$s"),
		bson.JavaScript("f()"), bson.CodeWithScope{Code: "f()", Scope: bson.D{{Key: "$x", Value: 1}}}, bson.DBPointer{DB: "d.c"},
		bson.Binary{Subtype: 4, Data: make([]byte, 16)}, bson.Binary{Subtype: 0x80, Data: []byte{0xff}}, bson.A{}, bson.A{bson.A{nil}, "$x"}, bson.D{},
		bson.D{{Key: "$gt", Value: ""}}, bson.D{{Key: "$set", Value: bson.D{{Key: "_id", Value: 1}}}}, bson.D{{Key: "$literal", Value: "$a"}},
	)
}

// hostileDocument holds a value, and names of fields that read as operators and paths.
func hostileDocument(id string, value any) bson.D {
	return bson.D{
		{Key: "_id", Value: id},
		{Key: "aggregateId", Value: id},
		{Key: "value", Value: value},
		{Key: "deep", Value: bson.D{{Key: "", Value: value}, {Key: "$set", Value: value}, {Key: "a.b", Value: value}, {Key: "a", Value: bson.D{{Key: "b", Value: value}}}}},
		{Key: "$top", Value: value},
		{Key: "dot.ted", Value: value},
		{Key: "\x1b[2J", Value: value},
		{Key: "list", Value: bson.A{value}},
	}
}

// G1, G2: the copy of a document has every byte of it, whatever its fields are called and hold,
// when the document comes, when a field of it changes, and when it is replaced.
func TestG1G2AMirrorCopiesHostileDocuments(t *testing.T) {
	for _, format := range []string{"json", "bson"} {
		for _, fullDocument := range []string{"updateLookup", "default"} {
			t.Run(format+" "+fullDocument, func(t *testing.T) {
				world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
					a := w.StartProducer("a", func(c *producer.Config, o *producer.Options) {
						world.AllOperations(c, o)
						c.AggregateIDPath, c.MessageFormat, c.FullDocument = "_id", format, fullDocument
					})
					p := w.StartProjector(func(c *projector.Config, _ *projector.Options) { c.Projection = "mirror" })
					w.Leads("a")
					var ids []string
					changes := 0
					for i, value := range hostileValues() {
						id := fmt.Sprint("document-", i)
						if text, ok := value.(string); ok && len(text) > 1<<19 {
							continue // nine copies are more than a message holds
						}
						ids = append(ids, id)
						w.InsertDocument(hostileDocument(id, value))
						changes++
						for _, change := range []bson.D{
							{{Key: "$set", Value: bson.D{{Key: "value", Value: i}, {Key: "deep.a.b", Value: i}, {Key: "list.0", Value: value}}}},
							{{Key: "$unset", Value: bson.D{{Key: "deep.a", Value: ""}}}, {Key: "$set", Value: bson.D{{Key: "new", Value: value}}}},
						} {
							_, err := w.Events.UpdateOne(w.Context(), bson.D{{Key: "_id", Value: id}}, change)
							require.NoError(w, err, "%v", value)
							changes++
						}
					}
					w.Completed(changes)
					require.Zero(w, w.Bus.Stats(world.SubscriptionPath).DeadLettered)
					copies := w.Client.Database(world.ReadModel).Collection("mirror")
					for _, id := range ids {
						want, err := w.Events.FindOne(w.Context(), bson.D{{Key: "_id", Value: id}}).Raw()
						require.NoError(w, err)
						got, err := copies.FindOne(w.Context(), bson.D{{Key: "_id", Value: id}}).Raw()
						require.NoError(w, err)
						require.Equal(w, []byte(want), []byte(got), "%v", want)
					}
					a.End()
					p.MustEnd()
				})
			})
		}
	}
}

// hostileEvent returns an event whose fields are sound, but for one.
func hostileEvent(aggregate, field string, value any) bson.D {
	event := bson.D{
		{Key: "aggregateId", Value: aggregate},
		{Key: "version", Value: 1},
		{Key: "type", Value: "OrderPlaced"},
		{Key: "occurredAt", Value: "2026-01-01T00:00:00Z"},
		{Key: "correlation", Value: "c"},
		{Key: "data", Value: bson.D{
			{Key: "customerId", Value: "customer of " + aggregate}, {Key: "totalCents", Value: 100}, {Key: "items", Value: 1}, {Key: "currency", Value: "EUR"},
		}},
	}
	within := event
	if name, ok := strings.CutPrefix(field, "data."); ok {
		within, field = event[len(event)-1].Value.(bson.D), name
	}
	for i := range within {
		if within[i].Key == field {
			within[i].Value = value
		}
	}
	return event
}

// G1, G3, G5: whatever a field of an event holds, from which the services take the event's type,
// version, time and correlation, or a projection an id, a name or an amount: the event is
// published, and takes effect once or parks its own aggregate. The documents of others hold what
// they should.
func TestG1G3G5HostileFieldsOfEvents(t *testing.T) {
	for _, name := range []string{"timeline", "orders"} {
		for _, field := range []string{"type", "version", "occurredAt", "correlation", "data.customerId", "data.totalCents", "data.items", "data.currency"} {
			if name == "timeline" && strings.HasPrefix(field, "data.") {
				continue
			}
			t.Run(name+" "+field, func(t *testing.T) {
				world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
					a := w.StartProducer("a", func(c *producer.Config, _ *producer.Options) {
						c.CorrelationIDPath, c.OnOversize, c.MaxInFlightBytes = "correlation", "claimcheck", 64<<20
					})
					p := w.StartProjector(func(c *projector.Config, o *projector.Options) {
						c.Projection, c.Blob, c.ClaimContainer = name, azure.Blob{ConnectionString: blob.ConnectionString(world.BlobHost)}, "claim-checks"
						o.Blob = world.BlobOptions(w.Blob.Transport())
					})
					w.Leads("a")
					values := hostileValues()
					if field == "type" || field == "correlation" { // which stops the stream, since a message has no room for it
						values = slices.DeleteFunc(values, func(v any) bool { text, _ := v.(string); return len(text) > 8<<10 })
					}
					for i, value := range values {
						w.InsertDocument(hostileEvent(fmt.Sprint("hostile-", i), field, value))
						w.InsertDocument(hostileEvent("healthy", "version", i+1))
					}
					w.Eventually("every event is decided", func() bool {
						s := w.Bus.Stats(world.SubscriptionPath)
						return s.Completed+s.DeadLettered >= 2*len(values)
					})
					counted := p.MustEnd()
					a.End()
					require.Equal(w, 2*len(values), counted.Applied+counted.DeadLettered)
					require.GreaterOrEqual(w, counted.Applied, len(values)+1, "nothing that is hostile is applied")
					all := w.Client.Database(world.ReadModel).Collection(name)
					events := func(id string) int64 {
						raw, err := all.FindOne(w.Context(), bson.D{{Key: "_id", Value: id}}).Raw()
						if err != nil {
							return 0
						}
						n, _ := raw.Lookup("events").AsInt64OK()
						return n
					}
					require.EqualValues(w, len(values), events("healthy"))
					aside := map[string]bool{}
					for _, m := range w.Bus.PeekDeadLetters(world.SubscriptionPath, 1000) {
						require.True(w, strings.HasPrefix(m.SessionID, "hostile-"), "%s: %s", m.SessionID, m.Description)
						aside[m.SessionID] = true
					}
					for i, value := range values {
						id := fmt.Sprint("hostile-", i)
						effects := events(id)
						require.Equal(w, !aside[id], effects == 1, "%T %.40q: %d events", value, value, effects)
						text, isText := value.(string)
						if field != "type" || !isText || aside[id] || name != "timeline" {
							continue
						}
						raw, err := all.FindOne(w.Context(), bson.D{{Key: "_id", Value: id}}).Raw()
						require.NoError(w, err)
						types, err := raw.Lookup("types").Document().Elements()
						require.NoError(w, err)
						require.Len(w, types, 1)
						require.Equal(w, text, projection.UnescapeKey(types[0].Key()))
					}
					if name == "orders" {
						customer, err := w.Client.Database(world.ReadModel).Collection("customers").FindOne(w.Context(), bson.D{{Key: "_id", Value: "customer of healthy"}}).Raw()
						require.NoError(w, err)
						require.EqualValues(w, len(values), customer.Lookup("orders").AsInt64())
					}
				})
			})
		}
	}
}

// quoting cannot apply any event, and quotes its type and the amount as they are.
type quoting struct{}

func (quoting) Name() string { return "quoting" }

func (quoting) Project(e projection.Event) ([]projection.Write, error) {
	return nil, projection.Permanent(fmt.Errorf("no rule for %s, nor for %s", e.Type, e.Text("data.currency")))
}

// G5, G6: what an event holds, and what a projection quotes of it, does nothing to the terminal of
// the operator who lists what is parked, breaks no line of a table, and leaves JSON that is JSON.
func TestG5G6WhatAnEventHoldsDoesNothingToATerminal(t *testing.T) {
	world.InVirtualTime(t, world.Options{Patience: 20 * time.Second}, func(w *world.World) {
		runs := func(c *projector.Config, o *projector.Options) {
			registry, err := projection.NewRegistry(quoting{})
			require.NoError(w, err)
			c.Projection, o.Projections = "quoting", registry
		}
		a := w.StartProducer("a", nil)
		p := w.StartProjector(runs)
		w.Leads("a")
		var names []string
		for i, text := range hostileText {
			if len(text) > 8<<10 {
				continue
			}
			event := hostileEvent(fmt.Sprintf("order %d %s", i, text), "type", text)
			event[len(event)-1].Value.(bson.D)[3].Value = text
			names = append(names, event[0].Value.(string))
			w.InsertDocument(event)
		}
		w.Eventually("all are parked", func() bool { return w.Bus.Stats(world.SubscriptionPath).DeadLettered == len(names) })
		plain := func(done world.Operated) {
			w.Helper()
			require.Equal(w, 0, done.Code, done.Err)
			for _, text := range []string{done.Out, done.Err} {
				require.True(w, utf8.ValidString(text))
				require.NotRegexp(w, `[\x00-\x09\x0b-\x1f\x7f\x{80}-\x{9f}]|\x{202e}|\x{2028}|\x{feff}`, text)
			}
		}
		list := w.OperateProjector(runs, "parked", "list")
		plain(list)
		require.Equal(w, 4+len(names), strings.Count(list.Out, "\n"), list.Out)
		plain(w.OperateProjector(runs, "status"))
		for _, parked := range parkedNames(w, runs) {
			plain(w.OperateProjector(runs, "parked", "show", "--", parked))
		}
		for line := range strings.SplitSeq(strings.TrimSpace(p.Log.Text()), "\n") {
			require.True(w, json.Valid([]byte(line)), line)
		}
		p.MustEnd()
		a.End()
	})
}

// parkedNames returns the names of the parked aggregates as JSON shows them.
func parkedNames(w *world.World, runs func(*projector.Config, *projector.Options)) (names []string) {
	w.Helper()
	list := w.OperateProjector(runs, "parked", "list", "--json")
	require.Equal(w, 0, list.Code, list.Err)
	var all []struct {
		Aggregate string `json:"aggregate"`
	}
	require.NoError(w, json.Unmarshal([]byte(list.Out), &all), list.Out)
	for _, a := range all {
		names = append(names, a.Aggregate)
	}
	return names
}
