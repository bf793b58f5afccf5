package pipeline

import (
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// BenchmarkNext is what the decision about one failure costs while other aggregates fail, too: it
// is made under the lock that every batch takes, so it must not grow with their number.
func BenchmarkNext(b *testing.B) {
	for _, others := range []int{0, 1_000, 100_000} {
		b.Run(fmt.Sprint("failing=", others), func(b *testing.B) {
			d, now := newDecider(10*time.Minute, 30*time.Second), time.Now()
			fail := func(aggregate string) {
				batch := &batch{}
				batch.add(event{message: &azservicebus.ReceivedMessage{}}, envelope.Change{MessageID: aggregate, Aggregate: aggregate}, apply.Result{})
				d.next(now, batch, attempt{})
				d.next(now, batch, attempt{made: true, failures: []apply.Failure{{Err: errOwn}}})
			}
			for n := range others {
				fail(fmt.Sprint("other-", n))
			}
			for b.Loop() {
				now = now.Add(time.Millisecond)
				fail("a")
			}
		})
	}
}
