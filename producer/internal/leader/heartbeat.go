package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/store"
)

const (
	// hedgesPerFence is how many times per fence an unanswered heartbeat request is sent again in
	// parallel.
	hedgesPerFence = 8
	// maxHedges is how many writes of one heartbeat may be outstanding, and how many reads in
	// addition.
	maxHedges = 4
)

// writeHedged writes the record over the one that this term wrote last. An unanswered request is
// followed by further ones: one in ten thousand takes seconds, and the fence is not much longer.
// The writes have the same content and the same condition, so at most one takes effect. It may be
// unknown which one: then the record is read, while the writes are still awaited.
func (e *Election) writeHedged(ctx context.Context, term *Term, record checkpoint.Record) error {
	a := &hedgedWrite{records: e.records, term: term, record: record, answers: make(chan response, 2*maxHedges)}
	defer a.outstanding.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	slow := time.NewTicker(e.config.FenceAfter / hedgesPerFence)
	defer slow.Stop()

	a.send(ctx)
	for {
		select {
		case <-slow.C:
			a.send(ctx)
		case answer := <-a.answers:
			if done, err := a.handle(ctx, answer); done {
				return err
			}
		}
	}
}

// hedgedWrite is one heartbeat in progress. It belongs to the goroutine of writeHedged.
type hedgedWrite struct {
	records Records
	term    *Term
	record  checkpoint.Record

	mustRead      bool // the record is not as this term knew it: read it before the next write
	writes, reads int  // outstanding
	outstanding   sync.WaitGroup
	answers       chan response // has room for every outstanding request
}

// response is the response to a write or a read.
type response struct {
	isRead   bool
	tag      store.Tag           // of a write
	snapshot checkpoint.Snapshot // of a read
	err      error
}

// send sends another write, or a read if one is needed. It does not wait.
func (a *hedgedWrite) send(ctx context.Context) {
	switch {
	case a.mustRead && a.reads < maxHedges:
		a.reads++
		a.outstanding.Go(func() {
			snapshot, err := a.records.Read(ctx)
			a.answers <- response{isRead: true, snapshot: snapshot, err: err}
		})
	case !a.mustRead && a.writes < maxHedges:
		a.writes++
		tag := a.term.tag
		a.outstanding.Go(func() {
			written, err := a.records.Write(ctx, a.record, a.term.leaseID, tag)
			a.answers <- response{tag: written, err: err}
		})
	}
}

// handle processes a response. It reports whether the heartbeat is done, and how it ended.
func (a *hedgedWrite) handle(ctx context.Context, got response) (done bool, err error) {
	if got.isRead {
		a.reads--
	} else {
		a.writes--
	}
	switch {
	case got.err == nil && got.isRead:
		return a.compare(ctx, got.snapshot)
	case got.err == nil:
		a.term.tag = got.tag
		return true, nil
	case errors.Is(got.err, checkpoint.ErrChanged):
		// Most likely changed by an earlier request of this term, whose response is late or lost.
		if !a.mustRead {
			a.mustRead = true
			a.send(ctx)
		}
		return false, nil
	}
	return isDecisive(got.err) || a.writes+a.reads == 0, got.err
}

// compare adopts the tag of the record if this term wrote it: no other leader can have written our
// epoch.
func (a *hedgedWrite) compare(ctx context.Context, there checkpoint.Snapshot) (done bool, err error) {
	switch {
	case there.Record.Epoch != a.term.Epoch || there.Record.Leader != a.record.Leader:
		return true, fmt.Errorf("%w by %s in epoch %d", checkpoint.ErrChanged, there.Record.Leader, there.Record.Epoch)
	case there.Record.HeartbeatAt.Equal(a.record.HeartbeatAt):
		a.term.tag = there.Tag
		return true, nil
	case a.mustRead: // otherwise the read is older than the one on which the next write is based
		a.mustRead, a.term.tag = false, there.Tag
		a.send(ctx)
	}
	return false, nil
}

// isDecisive reports whether no other request of the same heartbeat can succeed after this error.
func isDecisive(err error) bool {
	return errors.Is(err, checkpoint.ErrLeaseLost) || errors.Is(err, checkpoint.ErrLeaseHeld) ||
		errors.Is(err, checkpoint.ErrNotFound) || errors.Is(err, store.ErrTooLarge)
}
