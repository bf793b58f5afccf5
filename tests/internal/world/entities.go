package world

import (
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// The entities of every world's Service Bus.
const (
	Topic            = "changes"
	Subscription     = "projector"
	SubscriptionPath = Topic + "/Subscriptions/" + Subscription
	Queue            = "changes-queue" // replaces the topic and the subscription
	QueueOfTenTries  = "changes-tries" // as Queue, with the default number of deliveries
	PartitionedQueue = "partitioned"
	SpaciousQueue    = "spacious" // takes messages of 4 MB
	PlainQueue       = "plain"    // without sessions: wrong for either service
	HastyQueue       = "short"    // whose locks are too short
)

// LockDuration is the lock duration of the subscription and its queues.
const LockDuration = 30 * time.Second

// The databases and collections in the services' settings.
const (
	sourceDatabase   = "shop"
	sourceCollection = "events"
	ReadModel        = "readmodel" // a database
)

// entities returns all entities that tests need; window is the topic's window of duplicate
// detection.
func entities(window time.Duration) servicebus.Config {
	recognising := func(window time.Duration) servicebus.Inbound {
		return servicebus.Inbound{RequiresDuplicateDetection: true, DuplicateDetectionWindow: window}
	}
	sessions := servicebus.Outbound{RequiresSession: true}
	outbound := servicebus.Outbound{RequiresSession: true, LockDuration: LockDuration, MaxDeliveryCount: 3}
	return servicebus.Config{
		Topics: []servicebus.Topic{{
			Name: Topic, Inbound: recognising(window),
			Subscriptions: []servicebus.Subscription{{Name: Subscription, Outbound: outbound}},
		}},
		Queues: []servicebus.Queue{
			{Name: Queue, Inbound: recognising(20 * time.Second), Outbound: outbound},
			{
				Name: QueueOfTenTries, Inbound: recognising(20 * time.Second),
				Outbound: servicebus.Outbound{RequiresSession: true, LockDuration: LockDuration},
			},
			{Name: PartitionedQueue, Inbound: servicebus.Inbound{EnablePartitioning: true}, Outbound: sessions},
			{Name: SpaciousQueue, Inbound: servicebus.Inbound{MaxMessageBytes: 4 << 20}, Outbound: sessions},
			{Name: PlainQueue},
			{Name: HastyQueue, Outbound: servicebus.Outbound{RequiresSession: true, LockDuration: 5 * time.Second}},
		},
	}
}
