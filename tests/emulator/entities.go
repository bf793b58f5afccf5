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

// Entities is the default namespace: a topic with duplicate detection and one subscription with sessions, in the
// bounds of the official emulator's schema except for the lock, which is half its minimum there (the service allows
// 5 s): the sessions of a killed projector wait for it.
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

// Route is the way of the messages: where the producer sends them and where the projector receives them.
type Route struct {
	Topic        string // either a topic and a subscription
	Subscription string
	Queue        string        // or a queue
	LockDuration time.Duration // of its sessions
}

// In is the entity that messages are sent to, Out the one they are received from, in the form of their addresses.
func (r Route) In() string { return r.Topic + r.Queue } // exactly one is set

// Out is the entity that messages are received from.
func (r Route) Out() string {
	if r.Queue != "" {
		return r.Queue
	}
	return r.Topic + "/Subscriptions/" + r.Subscription
}

// ErrNoRoute is a namespace in which nothing has sessions.
var ErrNoRoute = errors.New("no subscription and no queue requires sessions")

// FindRoute is the first subscription of a namespace that has sessions, else its first queue that has.
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
