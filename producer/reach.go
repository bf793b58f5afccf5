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
	// reachTimeout bounds one attempt to reach MongoDB. A driver that missed its first answer hears the next after ten seconds: an
	// attempt that ended then would complain of a MongoDB that is there.
	reachTimeout = 15 * time.Second
	// lingering is how many fences the work of a lost term may take to end: after that only a restart helps.
	lingering = 6
)

// reached is which services a replica has reached since it began. It needs each of them once to be able to lead; what fails later
// would fail anywhere else.
type reached struct {
	mongo, bus atomic.Bool
}

// reachMongo returns when MongoDB has answered, with the right to sign in; false when ctx ends first.
func (p *producer) reachMongo(ctx context.Context) bool {
	if p.reached.mongo.Load() {
		return true
	}
	client := p.clients.collection.Database().Client()
	seen := outage.New(p.log, "connection to MongoDB")
	defer seen.Hurry(ctx, p.clients.mongoSeen.Silence)()
	if !seen.Until(ctx, reachTimeout, func(ctx context.Context) error { return client.Ping(ctx, readpref.Primary()) }) {
		return false
	}
	p.reached.mongo.Store(true)
	return true
}

// keepBus keeps the connection to Service Bus open until ctx ends, on a standby, too: a take-over then sends at once.
func (p *producer) keepBus(ctx context.Context) {
	seen := outage.New(p.log, "connection to Service Bus")
	heard := seen.Hurry(ctx, nil)
	defer func() { heard() }()
	p.clients.broker.Keep(ctx, func(err error) {
		heard()
		seen.Report(err)
		if err == nil {
			p.reached.bus.Store(true)
		}
	})
}

// able says what this replica still has to reach before it could lead.
func (p *producer) able() error {
	var missing []error
	for _, service := range []struct {
		name    string
		reached bool
	}{
		{"MongoDB", p.reached.mongo.Load()},
		{"Service Bus", p.reached.bus.Load()},
		{"storage", !p.election.State().WrittenAt.IsZero()},
	} {
		if !service.reached {
			missing = append(missing, fmt.Errorf("%s: %s has not been reached yet; see the log", p.config.Stream, service.name))
		}
	}
	return errors.Join(missing...)
}

// alive says whether the work of a term that is lost goes on and on.
func (p *producer) alive() error {
	since := p.election.Ending()
	if since.IsZero() || time.Since(since) < lingering*p.config.FenceAfter {
		return nil
	}
	return fmt.Errorf("%s: the work of a lost term has not ended for %s", p.config.Stream, time.Since(since).Round(time.Second))
}
