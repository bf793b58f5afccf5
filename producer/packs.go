package producer

import (
	"context"
	"time"

	"github.com/sluice-cdc/sluice/shared/outage"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// packsEvery is how often a leader with PACK=auto reads whether readers know packs.
const packsEvery = 10 * time.Second

// followPacks lets the publisher send packs while an operator has confirmed that every reader knows
// them, until ctx ends. While the confirmation cannot be read, it stays as it was last read.
func (p *replica) followPacks(ctx context.Context, permit func(bool)) {
	if p.cfg.Pack != "auto" {
		return
	}
	unreadable := outage.New(p.log, "the confirmation that readers know packs")
	for known, on := false, false; ; {
		attempt, cancel := context.WithTimeout(ctx, packsEvery)
		packs, _, err := p.checkpoint.Packs(attempt)
		cancel()
		if ctx.Err() == nil {
			unreadable.Report(err)
		}
		if err == nil && (!known || packs.On != on) {
			if known, on = true, packs.On; on {
				p.log.Info("events of a session that wait are sent in one message")
			} else {
				p.log.Warn("PACK=auto, and it is not confirmed that readers know packs: each event is sent in a message of its own",
					telemetry.KeyToDo, "deploy a version that knows packs to all readers, then run: producer packs on --readers-know")
			}
			permit(on)
		}
		if retry.Sleep(ctx, packsEvery) != nil {
			return
		}
	}
}
