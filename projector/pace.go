package projector

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/sessions"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// After so many deliveries, ten where nobody says otherwise, the broker takes a message out of its order by itself. Deliveries
// that count are those whose lock ran out: the network was away with messages in hand, or the projector stood still. Over
// and over that takes seconds, and what causes it may last longer. So after the freeDeliveries the next ones wait, for
// firstPause and then twice as long each time up to longestPause, spread at random: ten deliveries take half a minute at
// least, whichever replicas they are made to.
const (
	freeDeliveries = 3
	firstPause     = 500 * time.Millisecond
	longestPause   = 30 * time.Second
)

// pause is how long messages wait, before spreading, of which one is delivered for the n-th time.
func pause(n uint32) time.Duration {
	if n <= freeDeliveries {
		return 0
	}
	return min(firstPause<<min(n-freeDeliveries-1, 10), longestPause)
}

// pace holds messages back that were delivered often, with their session kept and its lock renewed. Its error is why the
// session is not to be used any more; given back, its messages are delivered again, and no delivery count rises.
func (s *service) pace(receiving context.Context, session *sessions.Session, messages []*azservicebus.ReceivedMessage) error {
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
	if err := retry.Sleep(receiving, wait); err != nil {
		return fmt.Errorf("stop with messages in hand: %w", err)
	}
	return nil
}
