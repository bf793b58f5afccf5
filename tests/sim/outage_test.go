package sim

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/sim/internal/network"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// away is how long the read model's database is away, in virtual time: much longer than a lock or
// an idle link lasts.
const away = 90 * time.Minute

var redelivered = regexp.MustCompile(`msg="projector stopped".* redelivered=([0-9]+)`)

// The read model's database is away for long while events come in: refused, or without a word.
// Nothing is parked or dead-lettered, no message is delivered twice, and everything is there when
// it comes back.
func TestG1G5TheReadModelsDatabaseIsAwayForLong(t *testing.T) {
	loaded()
	for seed, hangs := range []bool{false, true} {
		t.Run(fmt.Sprint("without a word: ", hangs), func(t *testing.T) {
			t.Parallel()
			p := plan.Draw(uint64(seed))
			p.Settings.Producers, p.Settings.Projectors, p.Garbage = 1, 1, nil
			virtualtime.Test(t, func(t *testing.T) {
				inWorld(t, p, func(w *world) {
					w.whole(func() {
						pause(w.Context(), 10*time.Second)
						w.trace.add("the read model's database is away for %s", away)
						defer w.disturb(time.Now(), plan.Step{})
						link := w.projector[0].now.mongo
						if hangs {
							link.Hold(network.Both)
						} else {
							link.Cut()
						}
						pause(w.Context(), away)
						committed, visible := w.record.Seen()
						require.Less(w, visible, committed, "the outage met no work")
						link.Heal()
					})
					counts := redelivered.FindAllStringSubmatch(w.trace.String(), -1)
					require.Len(w, counts, 1)
					require.Equal(w, "0", counts[0][1], "a delivery count was raised")
				})
			})
		})
	}
}
