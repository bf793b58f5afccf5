package bench

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// BenchmarkSnapshot publishes the same events as a change stream and as rows of a snapshot, in
// turn. snapshot/stream is the median of the ratios of events per second, and of processor time.
func BenchmarkSnapshot(b *testing.B) {
	const events, aggregates = 50_000, 5_000
	for _, latency := range []time.Duration{0, 2 * time.Millisecond, 10 * time.Millisecond} {
		b.Run(fmt.Sprintf("latency=%v", latency), func(b *testing.B) {
			s := newSource(b, latency, events, aggregates)
			_, err := s.events.Indexes().CreateOne(b.Context(), ascending("aggregateId", "version", "_id"))
			require.NoError(b, err)
			l := load{latency: latency, scope: "mixed", aggregates: aggregates, lanes: adaptive}
			runs := inTurn(func() pace { return s.runProducer(b, l) }, func() pace {
				return s.runProducerWith(b, l, func(c *producer.Config) {
					c.StartFrom, c.StartAt, c.SnapshotChunk, c.SnapshotReadPreference = "snapshot", time.Time{}, 1000, "primary"
				})
			})
			reportMedian(b, runs, "stream-events/s", func(stream, _ pace) float64 { return stream.perSecond })
			reportMedian(b, runs, "snapshot-rows/s", func(_, rows pace) float64 { return rows.perSecond })
			reportMedian(b, runs, "snapshot/stream", func(stream, rows pace) float64 { return rows.perSecond / stream.perSecond })
			reportMedian(b, runs, "cpu-snapshot/stream", func(stream, rows pace) float64 { return rows.cpu / stream.cpu })
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkSnapshotBesideChanges has a producer, as a process, begin with a snapshot of DOCUMENTS
// documents of 1 KB (default 100,000), while 500 changes per second are written that it publishes
// beside the snapshot. It reports the resident memory of the leader, the rows per second, and the
// time from a change's insert to its acceptance by the broker.
func BenchmarkSnapshotBesideChanges(b *testing.B) {
	const rate, writers = 500, 100 // a write waits for the server's journal, and longer beside other work
	documents := number(b, "DOCUMENTS", 100_000)
	program := buildProducer(b)
	entities := emulator.Entities()
	entities.Topics[0].Subscriptions[0].Rules = []servicebus.Rule{} // messages are accepted and not stored
	src := newEmptySource(b, emulator.Options{ServiceBus: &entities})
	_, err := src.events.Indexes().CreateOne(b.Context(), ascending("aggregateId", "version", "_id"))
	require.NoError(b, err)
	src.insert(b, documents, 10_000)

	// The live aggregates come before all others, so the snapshot has passed them from its first
	// chunk on.
	type change struct {
		aggregate string
		version   int64
	}
	var mu sync.Mutex
	inserted, rows := map[change]time.Time{}, 0
	var began, ended time.Time
	var lags []time.Duration
	src.stack.ServiceBus.Observe(func(a servicebus.Accepted) {
		mu.Lock()
		defer mu.Unlock()
		if _, row := a.Properties[envelope.PropSnapshot]; row {
			if rows++; rows == 1 {
				began = time.Now()
			}
			ended = time.Now()
			return
		}
		version, _ := a.Properties[envelope.PropVersion].(int64)
		aggregate, _ := a.Properties[envelope.PropSubject].(string)
		if at, ok := inserted[change{aggregate, version}]; ok {
			lags = append(lags, time.Since(at))
		}
	})
	leader := startProducer(b, src.stack, program, "json", time.Time{}, "START_FROM=snapshot", "OPERATIONS=insert", "MONGODB_URI="+src.uri,
		"FULL_DOCUMENT_BEFORE_CHANGE=off")
	var most float64
	done := make(chan struct{})
	var writing sync.WaitGroup
	for n := range writers {
		writing.Go(func() {
			tick := time.NewTicker(writers * time.Second / rate)
			defer tick.Stop()
			for c := (change{fmt.Sprintf("A%02d", n), 1}); ; c.version++ {
				select {
				case <-done:
					return
				case <-tick.C:
				}
				mu.Lock()
				inserted[c] = time.Now()
				mu.Unlock()
				_, err := src.events.InsertOne(b.Context(), bson.D{
					{Key: "aggregateId", Value: c.aggregate},
					{Key: "version", Value: c.version},
					{Key: "type", Value: "Measured"},
					{Key: "pad", Value: strings.Repeat("x", padding)},
				})
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for published := 0; published < documents; <-tick.C {
		most = max(most, resident(b, leader.Process.Pid))
		mu.Lock()
		published = rows
		mu.Unlock()
	}
	close(done)
	writing.Wait()
	require.NoError(b, leader.Process.Signal(syscall.SIGTERM))
	require.NoError(b, leader.Wait())
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(lags)
	require.NotEmpty(b, lags)
	b.ReportMetric(float64(rows-1)/ended.Sub(began).Seconds(), "rows/s")
	b.ReportMetric(float64(len(lags))/ended.Sub(began).Seconds(), "changes/s")
	b.ReportMetric(lags[len(lags)/2].Seconds(), "lag-p50-s")
	b.ReportMetric(lags[len(lags)*99/100].Seconds(), "lag-p99-s")
	b.ReportMetric(lags[len(lags)-1].Seconds(), "lag-max-s")
	b.ReportMetric(most, "leader-MiB")
	b.ReportMetric(0, "ns/op")
}
