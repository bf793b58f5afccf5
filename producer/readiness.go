package producer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/sluice-cdc/sluice/shared/outage"
)

const (
	// reachTimeout bounds one attempt to reach MongoDB. A driver that misses its first response
	// receives the next one after ten seconds, so a shorter attempt would report a reachable
	// MongoDB as unreachable.
	reachTimeout = 15 * time.Second
	// maxFences is how many times FENCE_AFTER the work of a lost term may take to end. After that
	// only a restart helps.
	maxFences = 6
)

// dependencies records which services a replica has reached since it started. To be able to lead,
// it must have reached each of them once. A later failure of one would affect any other replica as
// well.
type dependencies struct {
	mongo, serviceBus atomic.Bool
}

// reachMongo waits until MongoDB has answered and accepted the sign-in. It returns false if ctx
// ends first.
func (p *replica) reachMongo(ctx context.Context) bool {
	if p.dependencies.mongo.Load() {
		return true
	}
	seen := outage.New(p.log, "connection to MongoDB")
	if open := p.clients.openMongo; open != nil {
		if !seen.Until(ctx, reachTimeout, func(context.Context) error { return open() }) {
			return false
		}
		p.clients.openMongo = nil
	}
	client := p.clients.collection.Database().Client()
	defer seen.Hurry(ctx, p.clients.mongoSight.Silence)()
	if !seen.Until(ctx, reachTimeout, func(ctx context.Context) error { return client.Ping(ctx, readpref.Primary()) }) {
		return false
	}
	p.dependencies.mongo.Store(true)
	return true
}

// reachServiceBus keeps the connection to Service Bus open until ctx ends, on a standby as well, so
// that a new leader can send at once.
func (p *replica) reachServiceBus(ctx context.Context) {
	seen := outage.New(p.log, "connection to Service Bus")
	heard := seen.Hurry(ctx, nil)
	defer func() { heard() }()
	p.clients.broker.KeepOpen(ctx, func(err error) {
		heard()
		seen.Report(err)
		if err == nil {
			p.dependencies.serviceBus.Store(true)
		}
	})
}

// missingDependencies returns an error for each service that this replica must still reach before
// it could lead.
func (p *replica) missingDependencies() error {
	var missing []error
	for _, service := range []struct {
		name    string
		reached bool
	}{
		{"MongoDB", p.dependencies.mongo.Load()},
		{"Service Bus", p.dependencies.serviceBus.Load()},
		{"storage", !p.election.State().WrittenAt.IsZero()},
	} {
		if !service.reached {
			missing = append(missing, fmt.Errorf("%s: %s has not been reached yet; see the log", p.cfg.Stream, service.name))
		}
	}
	return errors.Join(missing...)
}

// checkStuck returns an error if the work of a lost term has not ended within maxFences fences.
func (p *replica) checkStuck() error {
	since := p.election.Ending()
	if since.IsZero() || time.Since(since) < maxFences*p.cfg.FenceAfter {
		return nil
	}
	return fmt.Errorf("%s: the work of a lost term has not ended for %s", p.cfg.Stream, time.Since(since).Round(time.Second))
}
