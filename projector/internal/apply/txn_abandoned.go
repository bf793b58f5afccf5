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
// One in which nothing runs from one look to the next is of a projector that is gone, stopped or cut off: between two statements of ours
// is no more than a round trip. How long a transaction has been open, or idle in all, says nothing of that: with many statements and a
// long way it is seconds. Nothing rests on the judgement: whoever is there after all is told that the transaction was aborted, and
// writes it again.
type orphans struct {
	admin *mongo.Database
	app   string // the name by which projectors connect
	ended func(n int)

	mu    sync.Mutex
	first time.Time // refusal of a row
	last  time.Time
	next  time.Time // look, at the earliest

	looking sync.Mutex
	seen    map[string]progress // at the last look, by session
}

// progress is how far a transaction is.
type progress struct{ number, active int64 }

const (
	// suspicion is how long transactions are refused by others before somebody looks for one that is abandoned, and quiet is after how
	// long without a refusal that begins anew.
	suspicion = time.Second
	quiet     = 30 * time.Second
	// between is how long a replica waits before it looks again, and so for how long nothing has run in what is ended. patience is how
	// long it waits for the answer.
	between  = 2 * time.Second
	patience = time.Second
)

// refused is called when a transaction was refused because another one writes the same document. Where that goes on, it ends the
// transactions that are abandoned by now. It does not end with ctx, the attempt's, which may leave it no time. An account sees its own
// transactions and may end them, without a right to anything else. A server that does not have what is asked for here is not asked
// often; it ends them by itself, later.
func (o *orphans) refused(ctx context.Context) {
	if !o.due(time.Now()) || !o.looking.TryLock() {
		return
	}
	defer o.looking.Unlock()
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
		}}},
		{{Key: "$project", Value: bson.D{
			{Key: "id", Value: "$lsid.id"}, {Key: "number", Value: "$transaction.parameters.txnNumber"}, {Key: "active", Value: "$transaction.timeActiveMicros"},
		}}},
	})
	if err != nil {
		return 0, err
	}
	var sessions []struct {
		ID             bson.RawValue
		Number, Active int64
	}
	if err := found.All(ctx, &sessions); err != nil {
		return 0, err
	}
	var errs []error
	before := o.seen
	o.seen = make(map[string]progress, len(sessions))
	for _, s := range sessions {
		id, now := string(s.ID.Value), progress{s.Number, s.Active}
		o.seen[id] = now
		if was, known := before[id]; !known || was != now {
			continue
		}
		kill := bson.D{{Key: "killSessions", Value: bson.A{bson.D{{Key: "id", Value: s.ID}}}}}
		if err := o.admin.RunCommand(ctx, kill).Err(); err != nil {
			errs = append(errs, err)
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}
