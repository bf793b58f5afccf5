// Package entity describes the queues, topics, subscriptions and rules of a Service Bus namespace:
// their properties, the service's defaults for them, and its limits.
package entity

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/filter"
)

// Limits and defaults of the service.
const (
	DefaultLockDuration     = time.Minute
	MaxLockDuration         = 5 * time.Minute
	DefaultMaxDeliveryCount = 10
	DefaultDedupWindow      = 10 * time.Minute
	MaxIDLength             = 128 // characters of MessageId, SessionId and PartitionKey
	MinAutoDeleteOnIdle     = 5 * time.Minute
)

// Config lists the entities of a namespace.
type Config struct {
	Queues []Queue
	Topics []Topic
}

// Inbound are the properties of an entity that takes messages.
type Inbound struct {
	// RequiresDuplicateDetection drops a message whose MessageId was accepted within the window.
	RequiresDuplicateDetection bool
	// DuplicateDetectionWindow defaults to 10 min.
	DuplicateDetectionWindow time.Duration
	// DefaultMessageTimeToLive caps every message's time to live; 0 means no limit.
	DefaultMessageTimeToLive time.Duration
	// EnablePartitioning makes a batch with several session ids or partition keys an error and
	// adds the partition key to the key of duplicate detection.
	EnablePartitioning bool
	// AutoDeleteOnIdle deletes the queue or topic once it has not been used for so long; 0: never,
	// otherwise at least [MinAutoDeleteOnIdle].
	AutoDeleteOnIdle time.Duration
	// SendDisabled refuses senders.
	SendDisabled bool
	// MaxMessageBytes of a message or batch; 0 means the namespace's limit.
	MaxMessageBytes uint64
}

// Outbound are the properties of an entity messages are received from.
type Outbound struct {
	RequiresSession bool
	// LockDuration is how long a message or a session is locked: 1 min by default, 5 min at most.
	LockDuration time.Duration
	// MaxDeliveryCount is the number of deliveries after which a message is dead-lettered: 10 by
	// default.
	MaxDeliveryCount int
	// DeadLetteringOnMessageExpiration moves expired messages instead of dropping them.
	DeadLetteringOnMessageExpiration bool
	// ForwardTo names a queue or topic to which every message is forwarded; not with sessions.
	ForwardTo string
	// ForwardDeadLetteredMessagesTo names the queue or topic that takes dead letters.
	ForwardDeadLetteredMessagesTo string
	// ReceiveDisabled refuses receivers.
	ReceiveDisabled bool
}

// Queue is a queue.
type Queue struct {
	Name string
	Inbound
	Outbound
}

// Topic is a topic and its subscriptions.
type Topic struct {
	Name string
	Inbound
	Subscriptions []Subscription
}

// Rule selects messages for a subscription and may change its copies. It comes out of a Config.json
// or of the administration; a Filter and an Action cannot be made otherwise.
type Rule struct {
	Name string
	// Filter nil selects everything.
	Filter filter.Filter
	// Action may be nil. A rule with one makes a copy of its own.
	Action *filter.Action
}

// Subscription is a subscription of a topic.
type Subscription struct {
	Name string
	// Rules: a message is taken if one of them selects it; nil takes everything, and an empty
	// list that is not nil takes nothing.
	Rules []Rule
	// DeadLetteringOnFilterErrors dead-letters a message on which a filter or action failed.
	// Without it that rule selects nothing.
	DeadLetteringOnFilterErrors bool
	// DefaultMessageTimeToLive caps every message's time to live; 0 means no limit.
	DefaultMessageTimeToLive time.Duration
	// AutoDeleteOnIdle deletes the subscription once it has had no receiver for so long, as with a
	// topic.
	AutoDeleteOnIdle time.Duration
	Outbound
}

// Validate reports every problem at once.
func (c Config) Validate() error {
	var errs []error
	seen := map[string]bool{}
	name := func(kind, n string) {
		switch {
		case n == "":
			errs = append(errs, fmt.Errorf("%s without a name", kind))
		case strings.Contains(n, "$"):
			errs = append(errs, fmt.Errorf("%s %q: a name must not contain $", kind, n))
		case seen[strings.ToLower(n)]:
			errs = append(errs, fmt.Errorf("%s %q is defined twice", kind, n))
		}
		seen[strings.ToLower(n)] = true
	}
	for _, q := range c.Queues {
		name("queue", q.Name)
		errs = append(errs, q.Inbound.Validate("queue "+q.Name), q.Outbound.Validate("queue "+q.Name))
	}
	for _, t := range c.Topics {
		name("topic", t.Name)
		errs = append(errs, t.Inbound.Validate("topic "+t.Name))
		for _, s := range t.Subscriptions {
			where := t.Name + "/Subscriptions/" + s.Name
			if s.Name == "" {
				errs = append(errs, fmt.Errorf("topic %s: subscription without a name", t.Name))
				continue
			}
			name("subscription", where)
			errs = append(errs, s.Outbound.Validate("subscription "+where), ValidateIdle("subscription "+where, s.AutoDeleteOnIdle))
		}
	}
	return errors.Join(errs...)
}

// Validate reports every problem; where names the entity in them.
func (i Inbound) Validate(where string) error {
	var errs []error
	if i.DuplicateDetectionWindow < 0 || i.DuplicateDetectionWindow > 7*24*time.Hour {
		errs = append(errs, fmt.Errorf("%s: duplicate detection window %s is not within 7 days", where, i.DuplicateDetectionWindow))
	}
	errs = append(errs, ValidateIdle(where, i.AutoDeleteOnIdle))
	if i.DefaultMessageTimeToLive < 0 {
		errs = append(errs, fmt.Errorf("%s: negative time to live %s", where, i.DefaultMessageTimeToLive))
	}
	return errors.Join(errs...)
}

// ValidateIdle checks an AutoDeleteOnIdle; where names the entity in the error.
func ValidateIdle(where string, after time.Duration) error {
	if after != 0 && after < MinAutoDeleteOnIdle {
		return fmt.Errorf("%s: AutoDeleteOnIdle %s is less than %s", where, after, MinAutoDeleteOnIdle)
	}
	return nil
}

// Validate reports every problem; where names the entity in them.
func (o Outbound) Validate(where string) error {
	var errs []error
	if o.LockDuration < 0 || o.LockDuration > MaxLockDuration {
		errs = append(errs, fmt.Errorf("%s: lock duration %s is not within %s", where, o.LockDuration, MaxLockDuration))
	}
	if o.MaxDeliveryCount < 0 {
		errs = append(errs, fmt.Errorf("%s: negative max delivery count %d", where, o.MaxDeliveryCount))
	}
	if o.ForwardTo != "" && o.RequiresSession {
		errs = append(errs, fmt.Errorf("%s: an entity that requires sessions cannot forward", where))
	}
	return errors.Join(errs...)
}
