package producer

import (
	"context"
	"time"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// keepTimeout bounds the keeping of a failure: the process may be about to end because storage is away.
const keepTimeout = 2 * time.Second

// keepFailure keeps beside the checkpoint why this replica stopped publishing the stream, so that `producer status` and the doctor
// can tell, wherever the log went. It is for people: where it cannot be written, nothing else happens.
func (p *producer) keepFailure(ctx context.Context, why error, stepDown bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTimeout)
	defer cancel()
	state := p.election.State()
	err := p.checkpoint.KeepFailure(ctx, checkpoint.Failure{
		Stream: p.config.Stream, Instance: p.instance, Led: state.Leader == p.instance, Epoch: state.Epoch, StepDown: stepDown,
		Position: state.Position, Error: why.Error(), At: time.Now().UTC(),
	})
	if err != nil {
		p.log.Debug("the failure is not kept beside the checkpoint", telemetry.KeyError, err)
	}
}
