package broker

import "github.com/sluice-cdc/sluice/tests/emulator/servicebus/entity"

// The types with which users describe entities are public.
type (
	Config       = entity.Config
	Inbound      = entity.Inbound
	Outbound     = entity.Outbound
	Queue        = entity.Queue
	Topic        = entity.Topic
	Subscription = entity.Subscription
	Rule         = entity.Rule
)

// DefaultMaxDeliveryCount is the maximum of an entity that does not set one.
const DefaultMaxDeliveryCount = entity.DefaultMaxDeliveryCount
