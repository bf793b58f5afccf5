package apply

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// abandonedTxns ends transactions of projectors that no longer exist. MongoDB notices neither a
// killed process nor a lost machine: it keeps an open transaction, and refuses every other write to
// its documents, for transactionLifetimeLimitSeconds, a minute.
//
// A transaction without activity between two checks belongs to a projector that has died, been
// stopped or lost its connection: a live projector issues its next statement within a round trip.
// How long a transaction has been open, or idle in total, does not show that: with many statements
// and a slow network it is seconds. Nothing depends on the judgement: a projector whose transaction
// was ended writes it again.
type abandonedTxns struct {
	admin *mongo.Database
	app   string // the name by which projectors connect
	ended func(n int)

	mu    sync.Mutex
	first time.Time // refusal in a row
	last  time.Time
	next  time.Time // check, at the earliest

	checking sync.Mutex
	seen     map[string]txnProgress // at the last check, by session
}

// txnProgress is the progress of a transaction.
type txnProgress struct{ number, active int64 }

const (
	// minRefusals is for how long transactions must be refused before a check for abandoned ones;
	// resetAfter without a refusal starts that time again.
	minRefusals = time.Second
	resetAfter  = 30 * time.Second
	// checkInterval is the time between two checks, and so for how long an ended transaction had no
	// activity. checkTimeout bounds one check.
	checkInterval = 2 * time.Second
	checkTimeout  = time.Second
)

// refused is called when a transaction was refused because another one writes the same document. If
// that continues, it ends the transactions that are abandoned. It may outlive ctx, the attempt's,
// which may leave it no time. An account may see and end its own transactions without further
// rights. A server that refuses this is asked once a minute; it ends the transactions later.
func (o *abandonedTxns) refused(ctx context.Context) {
	if !o.due(time.Now()) || !o.checking.TryLock() {
		return
	}
	defer o.checking.Unlock()
	// With a deadline, the driver refuses to send the check after slow round trips: it remembers
	// the shortest of the last ones.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer time.AfterFunc(checkTimeout, cancel).Stop()
	n, err := o.end(ctx)
	if server, ok := errors.AsType[mongo.CommandError](err); ok && server.Code != 0 {
		o.mu.Lock()
		o.next = time.Now().Add(time.Minute)
		o.mu.Unlock()
	}
	if n > 0 {
		o.ended(n)
	}
}

func (o *abandonedTxns) due(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Sub(o.last) > resetAfter {
		o.first = now
	}
	o.last = now
	if now.Sub(o.first) < minRefusals || now.Before(o.next) {
		return false
	}
	o.next = now.Add(checkInterval)
	return true
}

func (o *abandonedTxns) end(ctx context.Context) (n int, err error) {
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
	o.seen = make(map[string]txnProgress, len(sessions))
	for _, s := range sessions {
		id, now := string(s.ID.Value), txnProgress{s.Number, s.Active}
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
