package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/producer"
)

// BenchmarkSnapshot publishes the same events as a change stream and as rows of a snapshot, in
// turn. snapshot/stream is the median of the ratios of events per second, and of processor time.
func BenchmarkSnapshot(b *testing.B) {
	const events, aggregates = 50_000, 5_000
	for _, latency := range []time.Duration{0, 2 * time.Millisecond, 10 * time.Millisecond} {
		b.Run(fmt.Sprintf("latency=%v", latency), func(b *testing.B) {
			s := newSource(b, latency, events, aggregates)
			_, err := s.events.Indexes().CreateOne(b.Context(), mongo.IndexModel{Keys: bson.D{
				{Key: "aggregateId", Value: 1}, {Key: "version", Value: 1}, {Key: "_id", Value: 1},
			}})
			require.NoError(b, err)
			l := load{latency: latency, scope: "mixed", aggregates: aggregates, lanes: adaptive}
			var ratios, cpu []float64
			var streamed, snapshotted []float64
			for range pairs {
				stream := s.runProducer(b, l)
				rows := s.runProducerWith(b, l, func(c *producer.Config) {
					c.StartFrom, c.StartAt, c.SnapshotChunk, c.SnapshotReadPreference = "snapshot", time.Time{}, 2000, "primary"
				})
				ratios, cpu = append(ratios, rows.perSecond/stream.perSecond), append(cpu, rows.cpu/stream.cpu)
				streamed, snapshotted = append(streamed, stream.perSecond), append(snapshotted, rows.perSecond)
			}
			b.ReportMetric(median(streamed), "stream-events/s")
			b.ReportMetric(median(snapshotted), "snapshot-rows/s")
			b.ReportMetric(median(ratios), "snapshot/stream")
			b.ReportMetric(median(cpu), "cpu-snapshot/stream")
			b.ReportMetric(0, "ns/op")
		})
	}
}
