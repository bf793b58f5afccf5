package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"

	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/retry"
)

// abortTimeout bounds an abort once the context has ended. An abort that is not sent costs the
// documents' next writers a wait: the server aborts the transaction after a minute, or when the
// session begins its next one; see also [abandonedTxns].
const abortTimeout = time.Second

// transact runs write in a transaction and commits it. It retries the transaction or the commit by
// the server's labels, until ctx ends. [mongo.Session.WithTransaction] does the same, except that
// its commits and aborts do not end with ctx: a server that leaves one unanswered would keep the
// session, and the stop of the projector, waiting.
//
// After an error the effect may nevertheless be committed: the guard decides. The error is
// [ErrContended] if ctx ended while other transactions wrote the same documents.
func (a *Applier) transact(ctx context.Context, write func(context.Context) error) error {
	// A transaction does not use the concerns of the database's handle: without its own it would
	// use those of the client, which come from the connection string.
	session, err := a.client.StartSession(options.Session().SetDefaultTransactionOptions(options.Transaction().
		SetWriteConcern(writeconcern.Majority()).
		SetReadConcern(readconcern.Majority()).
		SetReadPreference(readpref.Primary())))
	if err != nil {
		return fmt.Errorf("start session: %w", err)
	}
	// Once ctx has ended this sends nothing, as is right after a commit that had no answer: a
	// transaction that a sharded cluster is committing must not be aborted, which could undo a part
	// of it.
	defer session.EndSession(ctx)
	backoff := retry.Backoff{Initial: 10 * time.Millisecond, Max: 500 * time.Millisecond}
	lost := false // to transactions that write the same documents
	for {
		done := a.conflicts.enter(ctx)
		lost = lost || ctx.Err() != nil
		err := attempt(ctx, session, write)
		done()
		lost = lost && ctx.Err() != nil
		switch Code(err) {
		case mongodb.WriteConflict:
			lost = true
			a.conflicts.conflicted()
			a.abandoned.refused(ctx)
		case mongodb.LockTimeout: // a command waits for the collection, behind a transaction that may be abandoned
			lost = true
			a.abandoned.refused(ctx)
		}
		if !labelled(err, driver.TransientTransactionError) || Classify(err) == TooLarge || backoff.Wait(ctx) != nil {
			if lost {
				return fmt.Errorf("%w: %w", ErrContended, err)
			}
			return err
		}
	}
}

// attempt runs one transaction.
func attempt(ctx context.Context, session *mongo.Session, write func(context.Context) error) error {
	if err := session.StartTransaction(); err != nil {
		return fmt.Errorf("start transaction: %w", err)
	}
	if err := write(mongo.NewSessionContext(ctx, session)); err != nil {
		aborting, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
		defer cancel()
		_ = session.AbortTransaction(aborting) // the reason for the abort is the better error
		return err
	}
	backoff := retry.Backoff{Initial: 10 * time.Millisecond, Max: 500 * time.Millisecond}
	for {
		err := session.CommitTransaction(ctx)
		switch {
		case err == nil:
			return nil
		case !undecided(err), Classify(err) == TooLarge, backoff.Wait(ctx) != nil:
			return fmt.Errorf("commit transaction: %w", err)
		}
	}
}

// undecided reports whether the outcome of a commit is unknown, so that the commit must be
// repeated.
func undecided(err error) bool {
	return labelled(err, driver.UnknownTransactionCommitResult) || mongo.IsTimeout(err) || mongo.IsNetworkError(err)
}

func labelled(err error, label string) bool {
	server, ok := errors.AsType[mongo.LabeledError](err)
	return ok && server.HasErrorLabel(label)
}
