package live

import (
	"context"
	"strings"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/tests/internal/wire"
)

// disturbance is a fault that servers inflict on their clients.
type disturbance struct {
	what string
	do   func()
}

func (w *world) disturb(d disturbance) {
	w.Helper()
	w.trace("%s", d.what)
	d.do()
}

// lose waits for a message between a service and a server, drops it, and cuts every connection
// between the two.
func (w *world) lose(s *service, server wire.Server, match func(wire.Unit) bool) {
	w.Helper()
	trap := wire.NewTrap(func(u wire.Unit) bool { return u.Server == server && match(u) })
	s.now.proxy.Arm(trap)
	defer s.now.proxy.Arm(nil)
	defer trap.Release(false)
	w.flow("a message is held", func() bool {
		select {
		case <-trap.Sprung():
			return true
		default:
			return false
		}
	})
	trap.Release(false)
	s.now.proxy.Cut(server)
}

// mongoDisturbances returns the disturbances of MongoDB.
func (w *world) mongoDisturbances() []disturbance {
	killCursors := w.killCursors
	if !w.real {
		killCursors = w.stack.Mongo.KillCursors // it does not list those that are idle
	}
	lost := func(of func() *service, command string) func() {
		return func() {
			w.lose(of(), wire.Mongo, func(u wire.Unit) bool { return u.Reply && u.Name == command })
		}
	}
	return []disturbance{
		{"MongoDB steps down", func() {
			require.NoError(w, w.client.Database("admin").RunCommand(w.Context(), bson.D{{Key: "replSetStepDown", Value: 1}, {Key: "force", Value: true}}).Err())
		}},
		{"every connection to MongoDB is cut", func() {
			for _, s := range w.services {
				s.now.proxy.Cut(wire.Mongo)
			}
		}},
		{"cursors are killed", killCursors},
		{"the answer to a commit is lost", lost(func() *service { return w.projectors[0] }, "commitTransaction")},
		{"the answer to a getMore is lost", lost(func() *service { return w.leader(w.streams()[0]) }, "getMore")},
	}
}

// killCursors kills every cursor of a real MongoDB on the events and the read model, and tries
// again until it has killed at least one: a producer's cursor is idle only between two requests.
func (w *world) killCursors() {
	admin := w.client.Database("admin")
	w.flow("a cursor is killed", func() bool {
		found, err := admin.Aggregate(w.Context(), driver.Pipeline{
			{{Key: "$currentOp", Value: bson.D{{Key: "idleCursors", Value: true}}}}, {{Key: "$match", Value: bson.D{{Key: "cursor.cursorId", Value: bson.D{{Key: "$exists", Value: true}}}}}},
		})
		require.NoError(w, err)
		defer func() { _ = found.Close(context.WithoutCancel(w.Context())) }()
		killed := 0
		for found.Next(w.Context()) {
			ns, id := found.Current.Lookup("ns").StringValue(), found.Current.Lookup("cursor", "cursorId").Int64()
			db, collection, _ := strings.Cut(ns, ".")
			if db != database && db != readModel {
				continue
			}
			var answer struct{ CursorsKilled []int64 }
			require.NoError(w, w.client.Database(db).RunCommand(w.Context(), bson.D{{Key: "killCursors", Value: collection}, {Key: "cursors", Value: bson.A{id}}}).Decode(&answer))
			killed += len(answer.CursorsKilled)
		}
		require.NoError(w, found.Err())
		return killed > 0
	})
}
