package bench

import (
	"bytes"
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// BenchmarkPacks measures producer and projector together, with 64 sessions, on a backlog: with and
// without packs, through a Service Bus that has the Standard tier's 1,000 credits a second, and
// through one without a limit, where the processor time of an event is compared.
func BenchmarkPacks(b *testing.B) {
	for _, tier := range []struct {
		name            string
		credits         int
		single, inPacks int // events
	}{{"standard", 1000, 5_000, 60_000}, {"unlimited", 0, 20_000, 20_000}} {
		b.Run(tier.name+"/off", func(b *testing.B) { throughCredits(b, tier.credits, "off", tier.single) })
		b.Run(tier.name+"/auto", func(b *testing.B) { throughCredits(b, tier.credits, "auto", tier.inPacks) })
	}
}

// throughCredits publishes and applies a backlog, and reports the rate from the first event that
// the broker accepts to the last one that is completed.
func throughCredits(b *testing.B, credits int, pack string, count int) {
	b.Helper()
	const aggregates = 4096
	src := newEmptySource(b, emulator.Options{ServiceBusCredits: credits})
	config := src.config(load{scope: "session", lanes: adaptive})
	config.Pack, config.PackEvents, config.PackBytes, config.MessageFormat = pack, 20, 60_000, "json"
	config.SessionKey = envelope.Buckets(64)
	src.confirmPacks(b, config)
	src.insert(b, count, aggregates)

	var accepted atomic.Int64
	src.stack.ServiceBus.Observe(func(a servicebus.Accepted) {
		// Each element of a pack has a version of CloudEvents; to parse them would cost more than
		// the broker's work.
		accepted.Add(int64(max(bytes.Count(a.Encoded, []byte(`"specversion":`)), 1)))
	})
	before, spent := src.stack.ServiceBus.Stats(emulator.Topic).Accepted, src.stack.ServiceBus.CreditsSpent()
	stopProjector := start(b, func(ctx context.Context) error {
		return projector.Run(ctx, projectorConfig(src.stack), projector.Options{Instance: "bench"})
	})
	stopProducer := start(b, func(ctx context.Context) error { return producer.Run(ctx, config, producer.Options{Instance: "bench"}) })
	src.arrived(before + 1)
	begun, taken := time.Now(), clock()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for accepted.Load() < int64(count) || src.stack.ServiceBus.Stats(subscriptionPath).Active > 0 {
		<-tick.C
	}
	took := time.Since(begun)
	reportPace(b, taken(count))
	messages := src.stack.ServiceBus.Stats(emulator.Topic).Accepted - before
	b.ReportMetric(float64(count)/float64(messages), "events/message")
	b.ReportMetric(float64(src.stack.ServiceBus.CreditsSpent()-spent)/took.Seconds(), "credits/s")
	stopProducer()
	stopProjector()
}

// confirmPacks lets a producer begin the stream, before there are events, and confirms that readers
// know packs.
func (s *source) confirmPacks(b *testing.B, config producer.Config) {
	b.Helper()
	stop := start(b, func(ctx context.Context) error { return producer.Run(ctx, config, producer.Options{Instance: "first"}) })
	load := func() ([]producer.Config, error) { return []producer.Config{config}, nil }
	confirm := func() int {
		return producer.Execute(b.Context(), []string{"packs", "on", "--readers-know", "--rules-checked"}, load,
			producer.Options{Instance: "desk"}, io.Discard, io.Discard, nil)
	}
	for confirm() != 0 {
		time.Sleep(10 * time.Millisecond)
	}
	stop()
}
