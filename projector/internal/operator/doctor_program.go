package operator

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-cdc/sluice/projector/internal/remote"
	"github.com/sluice-cdc/sluice/shared/checkup"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// programSample is how many events the doctor asks the projection's program for.
const programSample = 20

// examineProgram reaches the projection's program, times it, and compares its answers for the same
// events, if the source is configured.
func (p *Projector) examineProgram(ctx context.Context, found *checkup.Findings) {
	const check = "program"
	if p.Remote == nil {
		return
	}
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	stored, err := remote.Stored(ctx, p.Database, p.Projection.Name())
	if err != nil && !errors.Is(err, remote.ErrNotStored) {
		found.Problem(check, "read the error", "its declaration cannot be read from the read-model database: %v", err)
	}
	if stored != nil {
		if err := stored.Adopts(p.Remote.Declared()); err != nil {
			found.Problem(check, "deploy the program that made this read model, or set PROJECTION to another version and build it",
				"the read model was made with another declaration: %v", err)
			return
		}
	}
	events, unsampled := p.programEvents(ctx)
	x, err := p.Remote.Examine(ctx, events)
	switch {
	case err != nil:
		found.Problem(check, "start the program, and check PROJECTION_URL and its log", "it does not answer as it must: %v", err)
	case x.Differs != nil:
		found.Problem(check, "correct the program: a repeat of the event, or verify, would not make the same documents", "%v", x.Differs)
	case unsampled != nil:
		found.OK(check, "it answers in %s; whether its answers for events are always the same is not known: %v", x.Declaration.Round(time.Microsecond), unsampled)
	default:
		found.OK(check, "it answers in %s, and for %d events of the source in %s; its answers for the same events are the same, in any order and one by one",
			x.Declaration.Round(time.Microsecond), x.Events, x.Call.Round(time.Microsecond))
	}
}

// programEvents returns random documents of the source as inserts. The error is why none could be
// read.
func (p *Projector) programEvents(ctx context.Context) (events []envelope.Change, err error) {
	source, closeSource, err := p.Source.open(ctx, p.Database.Client())
	if err != nil {
		return nil, errors.New("set SOURCE_DATABASE and SOURCE_COLLECTION to have a sample compared")
	}
	defer closeSource()
	err = source.Sample(ctx, programSample, func(c envelope.Change) error {
		events = append(events, c)
		return nil
	})
	if err == nil && len(events) == 0 {
		err = errors.New("the source holds no document")
	}
	return events, err
}
