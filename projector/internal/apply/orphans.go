package apply

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// orphans ends transactions whose projector is gone. MongoDB notices neither a killed process nor a lost machine: it keeps an open
// transaction, and refuses every other write to its documents, for transactionLifetimeLimitSeconds, a minute.
//
// A transaction of ours takes milliseconds, and none lives longer than APPLY_TIMEOUT. One in which nothing has run for as long as
// abandoned is of a projector that is gone, stopped or cut off. Nothing rests on the judgement: whoever is there after all is told that
// the transaction was aborted, and writes it again.
type orphans struct {
	admin *mongo.Database
	app   string // the name by which projectors connect
	ended func(n int)

	mu   sync.Mutex
	next time.Time
}

const (
	// suspicion is how long a transaction is refused by others before somebody looks for one that is abandoned.
	suspicion = time.Second
	// abandoned is how long nothing has run in a transaction that is ended. It is much longer than a projector pauses between two
	// statements, a round trip or a turn on the processor away.
	abandoned = 2 * time.Second
	// between is how long a replica waits before it looks again.
	between = time.Second
)

// look ends the transactions that are abandoned by now. An account sees its own transactions and may end them, without a right to
// anything else. A server that does not have what is asked for here is not asked often; it ends them by itself, later.
func (o *orphans) look(ctx context.Context) {
	o.mu.Lock()
	now := time.Now()
	early := now.Before(o.next)
	if !early {
		o.next = now.Add(between)
	}
	o.mu.Unlock()
	if early {
		return
	}
	n, err := o.end(ctx)
	if err != nil && ctx.Err() == nil {
		o.mu.Lock()
		o.next = now.Add(time.Minute)
		o.mu.Unlock()
	}
	if n > 0 {
		o.ended(n)
	}
}

func (o *orphans) end(ctx context.Context) (n int, err error) {
	found, err := o.admin.Aggregate(ctx, mongo.Pipeline{
		{{Key: "$currentOp", Value: bson.D{{Key: "allUsers", Value: false}, {Key: "idleSessions", Value: true}}}},
		{{Key: "$match", Value: bson.D{
			{Key: "type", Value: "idleSession"},
			{Key: "appName", Value: o.app},
			{Key: "active", Value: false},
			{Key: "transaction.timeOpenMicros", Value: bson.D{{Key: "$gte", Value: abandoned.Microseconds()}}},
			{Key: "transaction.timeInactiveMicros", Value: bson.D{{Key: "$gte", Value: abandoned.Microseconds()}}},
		}}},
		{{Key: "$project", Value: bson.D{{Key: "id", Value: "$lsid.id"}}}},
	})
	if err != nil {
		return 0, err
	}
	var sessions []struct{ ID bson.RawValue }
	if err := found.All(ctx, &sessions); err != nil {
		return 0, err
	}
	var errs []error
	for _, s := range sessions {
		kill := bson.D{{Key: "killSessions", Value: bson.A{bson.D{{Key: "id", Value: s.ID}}}}}
		if err := o.admin.RunCommand(ctx, kill).Err(); err != nil {
			errs = append(errs, err)
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}
