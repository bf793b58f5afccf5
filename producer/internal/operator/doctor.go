package operator

import (
	"context"

	"github.com/sluice-cdc/sluice/shared/checkup"
)

// Doctor checks everything that a producer needs against the services. It leaves nothing behind: it
// deletes its blobs again.
func (s *Stream) Doctor(ctx context.Context) checkup.Findings {
	var found checkup.Findings
	s.Progress.Set("doctor: blob storage", 0, 0)
	s.examineBlob(ctx, &found)
	s.examineClaims(ctx, &found)
	s.Progress.Set("doctor: service bus", 0, 0)
	s.examineServiceBus(ctx, &found)
	s.Progress.Set("doctor: mongodb", 0, 0)
	s.examineMongo(ctx, &found)
	return found
}
