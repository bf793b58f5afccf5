package broker

import "github.com/sluice-cdc/sluice/tests/emulator/servicebus/entity"

// What users describe entities with is public.
type (
	Config       = entity.Config
	Inbound      = entity.Inbound
	Outbound     = entity.Outbound
	Queue        = entity.Queue
	Topic        = entity.Topic
	Subscription = entity.Subscription
	Rule         = entity.Rule
)

// DefaultMaxDeliveryCount is what an entity has that names none.
const DefaultMaxDeliveryCount = entity.DefaultMaxDeliveryCount
