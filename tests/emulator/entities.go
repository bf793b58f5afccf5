package emulator

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// The default entities.
const (
	Topic        = "changes"
	Subscription = "projector"
)

// Entities returns the default namespace: a topic with duplicate detection and one subscription
// with sessions. It is within the limits of the official emulator's schema except for the lock
// duration, which is half of the minimum there (the service allows 5 s): until it has passed, the
// sessions of a killed projector cannot be accepted.
func Entities() servicebus.Config {
	return servicebus.Config{Topics: []servicebus.Topic{{
		Name:    Topic,
		Inbound: servicebus.Inbound{RequiresDuplicateDetection: true, DuplicateDetectionWindow: 5 * time.Minute},
		Subscriptions: []servicebus.Subscription{{
			Name: Subscription,
			Outbound: servicebus.Outbound{
				RequiresSession: true, LockDuration: 30 * time.Second, MaxDeliveryCount: 10, DeadLetteringOnMessageExpiration: true,
			},
		}},
	}}}
}

// Route is the path of the messages: the entity that the producer sends to and the one that the
// projector receives from.
type Route struct {
	Topic        string // either a topic and a subscription
	Subscription string
	Queue        string        // or a queue
	LockDuration time.Duration // of its sessions
}

// In returns the entity that messages are sent to, in the form of its address.
func (r Route) In() string { return r.Topic + r.Queue } // exactly one is set

// Out returns the entity that messages are received from.
func (r Route) Out() string {
	if r.Queue != "" {
		return r.Queue
	}
	return r.Topic + "/Subscriptions/" + r.Subscription
}

// ErrNoRoute means that no entity of the namespace requires sessions.
var ErrNoRoute = errors.New("no subscription and no queue requires sessions")

// FindRoute returns the first subscription of a namespace that requires sessions, or else its first
// such queue.
func FindRoute(c servicebus.Config) (Route, error) {
	for _, t := range c.Topics {
		for _, s := range t.Subscriptions {
			if s.RequiresSession {
				return Route{Topic: t.Name, Subscription: s.Name, LockDuration: s.LockDuration}, nil
			}
		}
	}
	for _, q := range c.Queues {
		if q.RequiresSession {
			return Route{Queue: q.Name, LockDuration: q.LockDuration}, nil
		}
	}
	return Route{}, fmt.Errorf("find a way for messages among %d topics and %d queues: %w", len(c.Topics), len(c.Queues), ErrNoRoute)
}
