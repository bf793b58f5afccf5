package projector

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/sessions"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// After MaxDeliveryCount deliveries, ten by default, the broker dead-letters a message by itself, out of order. Only a delivery
// whose lock expired counts: the network was away with messages in hand, or the projector stood still. Ten of those may pass within
// seconds, while their cause lasts longer. So after freeDeliveries each further one waits: firstPause, then twice as long each time
// up to longestPause, spread at random. Ten deliveries then take half a minute at least, whichever replicas get them.
const (
	freeDeliveries = 3
	firstPause     = 500 * time.Millisecond
	longestPause   = 30 * time.Second
)

// pause is how long a batch waits, before spreading, when one of its messages is delivered for the n-th time.
func pause(n uint32) time.Duration {
	if n <= freeDeliveries {
		return 0
	}
	return min(firstPause<<min(n-freeDeliveries-1, 10), longestPause)
}

// atRisk says whether one of the messages is to park its aggregate.
func (s *service) atRisk(messages []*azservicebus.ReceivedMessage) bool {
	last := s.lastDelivery()
	return slices.ContainsFunc(messages, func(m *azservicebus.ReceivedMessage) bool { return m.DeliveryCount >= last })
}

// pace delays messages that were delivered often, while their session is kept without a worker, and its lock renewed. After an error the session
// must be released: its messages are then delivered again, and no delivery count rises.
func (s *service) pace(receiving context.Context, session *sessions.Session, b *batch, messages []*azservicebus.ReceivedMessage) error {
	var deliveries uint32
	for _, m := range messages {
		deliveries = max(deliveries, m.DeliveryCount)
	}
	longest := pause(deliveries)
	if longest == 0 {
		return nil
	}
	wait := longest/2 + rand.N(longest/2)
	s.log.Warn("messages are delivered again and again, because their session's lock was lost each time: waiting before this delivery",
		telemetry.KeySession, session.ID(), telemetry.KeyDelivery, deliveries, telemetry.KeyWait, wait.Milliseconds())
	if err := session.Aside(receiving, b.bytes(), func(bool) { _ = retry.Sleep(receiving, wait) }); err != nil {
		return fmt.Errorf("stop with messages in hand: %w", err)
	}
	return nil
}
