package operator

import (
	"context"

	"github.com/sluice-cdc/sluice/shared/checkup"
)

// Doctor checks everything that a producer needs against the services. It leaves nothing behind: it
// deletes its blobs again.
func (s *Stream) Doctor(ctx context.Context) checkup.Findings {
	var found checkup.Findings
	d := &doctor{s}
	s.Progress.Set("doctor: blob storage", 0, 0)
	d.examineBlob(ctx, &found)
	d.examineClaims(ctx, &found)
	s.Progress.Set("doctor: service bus", 0, 0)
	d.examineServiceBus(ctx, &found)
	s.Progress.Set("doctor: mongodb", 0, 0)
	d.examineMongo(ctx, &found)
	return found
}

// doctor runs the checks of [Stream.Doctor].
type doctor struct{ *Stream }
