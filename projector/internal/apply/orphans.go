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

	mu    sync.Mutex
	first time.Time // refusal of a row
	last  time.Time
	next  time.Time // look, at the earliest
}

const (
	// suspicion is how long transactions are refused by others before somebody looks for one that is abandoned, and quiet is after how
	// long without a refusal that begins anew.
	suspicion = time.Second
	quiet     = 30 * time.Second
	// abandoned is how long nothing has run in a transaction that is ended. It is much longer than a projector pauses between two
	// statements, a round trip or a turn on the processor away.
	abandoned = 2 * time.Second
	// between is how long a replica waits before it looks again, and patience how long it waits for the answer.
	between  = 2 * time.Second
	patience = 2 * time.Second
)

// refused is called when a transaction was refused because another one writes the same document. Where that goes on, it ends the
// transactions that are abandoned by now. It does not end with ctx, the attempt's, which may leave it no time. An account sees its own
// transactions and may end them, without a right to anything else. A server that does not have what is asked for here is not asked
// often; it ends them by itself, later.
func (o *orphans) refused(ctx context.Context) {
	if !o.due(time.Now()) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	n, err := o.end(ctx)
	if err != nil {
		o.mu.Lock()
		o.next = time.Now().Add(time.Minute)
		o.mu.Unlock()
	}
	if n > 0 {
		o.ended(n)
	}
}

func (o *orphans) due(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Sub(o.last) > quiet {
		o.first = now
	}
	o.last = now
	if now.Sub(o.first) < suspicion || now.Before(o.next) {
		return false
	}
	o.next = now.Add(between)
	return true
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
