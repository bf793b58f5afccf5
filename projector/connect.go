package projector

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/sluice-cdc/sluice/projector/internal/schema"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/outage"
)

const (
	// reachTimeout bounds one attempt to reach a dependency. A driver that missed MongoDB's first answer hears the next after ten
	// seconds (see [mongodb.Interactive]): an attempt that ended then would complain of a MongoDB that is there.
	reachTimeout = 15 * time.Second
	// closeTimeout bounds the closing of a client or link that was used for a moment.
	closeTimeout = 10 * time.Second
)

// connect checks once that both dependencies can be reached and grant access; until then the projector is not ready. The workers do
// not wait for it.
func (s *service) connect(ctx context.Context) {
	var checks sync.WaitGroup
	checks.Go(func() {
		seen := outage.New(s.log, "connection to MongoDB")
		defer seen.Hurry(ctx, s.mongoSeen.Silence)()
		if seen.Until(ctx, reachTimeout, s.reachMongo) {
			s.mongoReady.Store(true)
		}
	})
	checks.Go(func() {
		seen := outage.New(s.log, "connection to Service Bus")
		defer seen.Hurry(ctx, nil)()
		if seen.Until(ctx, reachTimeout, s.reachServiceBus) {
			s.busReady.Store(true)
		}
	})
	checks.Wait()
}

// reachMongo also makes the collections and indexes that the projection names.
func (s *service) reachMongo(ctx context.Context) error {
	if err := s.mongo.Ping(ctx, readpref.Primary()); err != nil {
		return err
	}
	collections, _ := projection.Collections(s.chosen)
	return schema.Create(ctx, s.mongo.Database(s.cfg.Database), collections)
}

// reachServiceBus peeks at the dead-letter queue. That needs the same connection, right and entity as accepting a session, but is
// answered at once.
func (s *service) reachServiceBus(ctx context.Context) error {
	conn, err := s.namespace.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		conn.Close(closing)
	}()
	letters := s.cfg.entity().Path() + azure.DeadLetters
	if err := conn.Claim(ctx, letters); err != nil {
		return err
	}
	first := map[string]any{"from-sequence-number": int64(0), "message-count": int32(1)}
	if _, err := conn.Manage(ctx, letters, "com.microsoft:peek-message", "", first); err != nil {
		return fmt.Errorf("peek at the dead-letter queue of %s: %w", s.cfg.entity(), err)
	}
	return nil
}
