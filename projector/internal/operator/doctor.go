package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector/internal/build"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/checkup"
	"github.com/sluice-cdc/sluice/shared/mongodb"
)

// Doctor checks everything a projector needs against the services.
func (p *Projector) Doctor(ctx context.Context) checkup.Findings {
	var found checkup.Findings
	p.Progress.Set("doctor: service bus", 0, 0)
	p.examineServiceBus(ctx, &found)
	p.Progress.Set("doctor: mongodb", 0, 0)
	p.examineMongo(ctx, &found)
	p.examineProgram(ctx, &found)
	return found
}

// shortLock is a lock duration that a slow write can outlive.
const shortLock = 20 * time.Second

// examineServiceBus peeks at the dead-letter queue, which needs Listen, and accepts an empty
// session of its own, which needs an entity with sessions.
func (p *Projector) examineServiceBus(ctx context.Context, found *checkup.Findings) {
	const check = "service bus"
	bounded, cancel := p.bounded(ctx)
	err := p.peek(bounded, deadLetters, nil)
	cancel()
	refusal, _ := errors.AsType[*azservicebus.Error](err)
	switch {
	case err == nil:
		found.OK(check, "%q and its dead-letter queue can be received from", p.Entity.String())
	case refusal != nil && refusal.Code == azservicebus.CodeNotFound:
		found.Problem(check, "create it, or check SERVICE_BUS_TOPIC and SERVICE_BUS_SUBSCRIPTION, or SERVICE_BUS_QUEUE",
			"the namespace has no entity %q", p.Entity.String())
		return
	case refusal != nil && refusal.Code == azservicebus.CodeUnauthorizedAccess && p.LocalAuth:
		found.Problem(check, "check the key and that its rule has Listen; where the namespace has local authentication switched off "+
			"(disableLocalAuth), no key is taken: set SERVICE_BUS_NAMESPACE and use an identity; "+
			"and check this machine's clock: a token that is made of the key has expired where it is more than an hour behind",
			"the connection string is not accepted for %q", p.Entity.String())
		return
	case refusal != nil && refusal.Code == azservicebus.CodeUnauthorizedAccess:
		found.Problem(check, "give it the role Azure Service Bus Data Receiver on the entity or the namespace (a new role takes minutes to work)",
			"the identity may not receive from %q", p.Entity.String())
		return
	default:
		found.Problem(check, "check the namespace's name, that ports 5671 or 443 are open to it, that an identity is signed in, and that a "+
			"firewall of the namespace lets this address in", "no receiver's link to %q opens: %v", p.Entity.String(), err)
		return
	}
	p.examineSessions(ctx, found)
	p.examineEntity(ctx, found)
}

func (p *Projector) examineSessions(ctx context.Context, found *checkup.Findings) {
	const check = "sessions"
	bounded, cancel := p.bounded(ctx)
	defer cancel()
	start := time.Now()
	session, err := p.Entity.Accept(bounded, p.Bus, "sluice-doctor-"+bson.NewObjectID().Hex())
	if err != nil {
		// A receiver without a session is accepted only if the entity requires none.
		if p.peek(bounded, nil, nil) == nil {
			found.Problem(check, "recreate the subscription or queue with sessions required: it can only be set when it is created; "+
				"drain the old one first", "%q does not require sessions, and without them order is lost", p.Entity.String())
			return
		}
		found.Problem(check, "try again; if it stays, read the error", "no session of %q can be accepted: %v", p.Entity.String(), err)
		return
	}
	defer func() {
		ctx, cancel := p.bounded(context.WithoutCancel(ctx))
		defer cancel()
		_ = session.Close(ctx) // otherwise its lock expires
	}()
	if off := checkup.ClockByLock(session.LockedUntil(), start); off != "" {
		found.Problem(check, checkup.FixClock, "%s", off)
		return
	}
	lock := session.LockedUntil().Sub(start).Round(time.Second)
	if lock < shortLock {
		found.Problem(check, "set the lock duration to a minute or more",
			"they can be accepted, but their lock lasts only about %s, by the clocks of two machines: a pause loses it, and work is done twice", lock)
		return
	}
	found.OK(check, "they are required, and can be accepted; the lock lasts about %s", lock)
}

const (
	grantReadWrite           = "give the user the role readWrite on the database"
	transactionsAreNecessary = "use a replica set or a sharded cluster of MongoDB 4.4 or newer"
)

func (p *Projector) examineMongo(ctx context.Context, found *checkup.Findings) {
	bounded, cancel := p.bounded(ctx)
	answers := found.Mongo(bounded, p.Database.Client(), "mongodb", "MONGODB_URI", "transactions")
	cancel()
	if !answers {
		return
	}
	collections, named := projection.Collections(p.Projection)
	guards := p.Applier.GuardCollection()

	const check = "collections"
	bounded, cancel = p.bounded(ctx)
	err := build.CheckCollations(bounded, p.Database, p.Applier.Collections())
	cancel()
	if collated, ok := errors.AsType[*build.CollationError](err); ok {
		found.Problem(check, "recreate it without a collation, or set another READ_MODEL_DATABASE; give searches an index or a query with "+
			"the collation instead", "%s.%s has a collation of its own: ids and positions would not be compared exactly", collated.Database, collated.Collection)
		return
	}

	bounded, cancel = p.bounded(ctx)
	err = build.CreateCollections(bounded, p.Database, p.Projection)
	cancel()
	switch {
	case errors.Is(err, build.ErrDropped):
		found.Problem(check, "delete its app, or set PROJECTION to another version", "%v", err)
		return
	case errors.Is(err, build.ErrRights):
		found.Problem(check, grantReadWrite+", or have another user create the collections and indexes", "the user may not list or create them: %v", err)
	case err != nil:
		found.Problem(check, "read the error", "they and their indexes cannot be made: %v", err)
	case !named:
		found.OK(check, "the projection does not name its own; they are made by the first write")
	default:
		found.OK(check, "%s: there, with their indexes (missing ones are created, as at every start)", names(collections))
	}

	bounded, cancel = p.bounded(ctx)
	defer cancel()
	if err := p.Applier.Index(bounded); err != nil {
		found.Problem("index of parked", "give the user the action createIndex on "+guards+
			", or create the index yourself; without it everything works, but parked aggregates are found by reading the whole collection", "it cannot be made: %v", err)
	} else {
		found.OK("index of parked", "it is on %s", guards)
	}
	p.examineWrite(bounded, found, append(collections, projection.Collection{Name: guards}))
}

func names(collections []projection.Collection) string {
	all := make([]string, len(collections))
	for i, c := range collections {
		all[i] = c.Name
	}
	return strings.Join(all, ", ")
}

// examineWrite writes to every collection in one transaction, and aborts it.
func (p *Projector) examineWrite(ctx context.Context, found *checkup.Findings, collections []projection.Collection) {
	const check = "write"
	err := p.rehearse(ctx, collections)
	switch {
	case err == nil:
		found.OK(check, "a transaction can write to %s (it was aborted)", p.Database.Name())
	case mongodb.HasCode(err, mongodb.Unauthorized):
		found.Problem(check, grantReadWrite, "the user may not write: %v", err)
	case mongodb.HasCode(err, mongodb.IllegalOperation, mongodb.OperationNotSupportedInTransaction):
		found.Problem(check, transactionsAreNecessary, "the deployment has no transactions: %v", err)
	case mongodb.HasCode(err, mongodb.DocumentValidationFailure):
		found.OK(check, "a transaction can write to %s (its validation refused the trial, which is no event's)", p.Database.Name())
	default:
		found.Problem(check, "read the error", "a transaction cannot write to %s: %v", p.Database.Name(), err)
	}
}

func (p *Projector) rehearse(ctx context.Context, collections []projection.Collection) error {
	session, err := p.Database.Client().StartSession()
	if err != nil {
		return fmt.Errorf("start session: %w", err)
	}
	defer session.EndSession(ctx)
	if err := session.StartTransaction(); err != nil {
		return fmt.Errorf("start transaction: %w", err)
	}
	defer func() { _ = session.AbortTransaction(context.WithoutCancel(ctx)) }() // the server would end it, too
	ctx = mongo.NewSessionContext(ctx, session)
	id := "sluice-doctor-" + bson.NewObjectID().Hex()
	for _, c := range collections {
		_, err := p.Database.Collection(c.Name).UpdateOne(ctx, bson.D{{Key: "_id", Value: id}},
			bson.D{{Key: "$set", Value: bson.D{{Key: projection.GuardField, Value: bson.D{}}}}}, options.UpdateOne().SetUpsert(true))
		if err != nil {
			return fmt.Errorf("write to %s: %w", c.Name, err)
		}
	}
	return nil
}

// examineEntity asks the administration of Service Bus when the broker removes messages. That needs
// the right to manage, which the projector does not need: without it, the finding is that this is
// unknown, which is not a problem.
func (p *Projector) examineEntity(ctx context.Context, found *checkup.Findings) {
	const deliveries, expiry = "deliveries", "expiry"
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	client, err := p.Administer()
	var d azure.Delivery
	if err == nil {
		d, err = p.Entity.Delivery(ctx, client)
	}
	if err != nil {
		set := fmt.Sprintf("MAX_DELIVERIES is %d", p.MaxDeliveries)
		if p.Asks {
			set = fmt.Sprintf("MAX_DELIVERIES is not set and taken for %d", p.MaxDeliveries)
		}
		found.OK(deliveries, "%s, and what the entity has is unknown: %s", set, azure.WhyUnanswered(err))
		found.OK(expiry, "unknown: %s", azure.WhyUnanswered(err))
		return
	}
	switch most := d.Most; {
	case p.Asks:
		found.OK(deliveries, "an aggregate is parked before a message has had %d, the value of the entity, which the projector asks for (MAX_DELIVERIES is not set)", most)
	case most < p.MaxDeliveries:
		found.Problem(deliveries, fmt.Sprintf("set MAX_DELIVERIES=%d, or raise the entity's MaxDeliveryCount", most),
			"the broker dead-letters a message after %d, and MAX_DELIVERIES is %d: a message that fails is overtaken by later ones of its aggregate", most, p.MaxDeliveries)
	case most > p.MaxDeliveries:
		found.OK(deliveries, "an aggregate is parked before a message has had %d (MAX_DELIVERIES); the entity allows %d", p.MaxDeliveries, most)
	default:
		found.OK(deliveries, "an aggregate is parked before a message has had %d, after which the broker dead-letters it", most)
	}
	if !d.KeepsExpired {
		found.Problem(expiry, "switch on dead-lettering on message expiration",
			"%q drops messages that have expired: an event that waits for longer than its time to live is lost", p.Entity.String())
		return
	}
	found.OK(expiry, "messages that have expired are dead-lettered, not dropped")
}
