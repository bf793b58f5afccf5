package await

import (
	"context"
	"errors"
	"maps"
	"sync"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// place is a collection of guards, as one client of the process reaches it.
type place struct {
	client                       *mongo.Client
	database, collection, prefix string
}

// shared are the guards on which callers of this process wait, or have waited a moment ago.
var shared = struct {
	sync.Mutex
	all map[place]*guards
}{all: make(map[place]*guards)}

// Wait waits until the guard of an aggregate meets what is wanted, and returns it. prefix leads to
// the guard in a document of the collection. Errors, with the guard as it was last read:
// [ErrParked]; [ErrNotYet] once ctx has ended; and those of the database that do not pass, such as
// of a server without change streams.
func Wait(ctx context.Context, database *mongo.Database, collection, prefix string, want Want) (Guard, error) {
	at := place{database.Client(), database.Name(), collection, prefix}
	for {
		shared.Lock()
		g := shared.all[at]
		if g == nil {
			g = newGuards(at)
			shared.all[at] = g
		}
		shared.Unlock()
		guard, err := g.wait(ctx, want)
		if !errors.Is(err, errRetired) {
			return guard, err
		}
	}
}

// retire ends the stream of guards and forgets them, if no caller waits.
func retire(g *guards) {
	shared.Lock()
	defer shared.Unlock()
	if g.end() {
		maps.DeleteFunc(shared.all, func(_ place, known *guards) bool { return known == g })
	}
}

// Close ends the streams of a client, which is about to be disconnected and on which no call waits
// any more.
func Close(client *mongo.Client) {
	var ended []*guards
	shared.Lock()
	for at, g := range shared.all {
		if at.client == client && g.end() {
			delete(shared.all, at)
			ended = append(ended, g)
		}
	}
	shared.Unlock()
	for _, g := range ended {
		g.streams.Wait()
	}
}
