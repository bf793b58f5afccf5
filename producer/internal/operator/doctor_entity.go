package operator

import (
	"context"
	"strings"

	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/checkup"
)

// examineEntity checks the entity's properties. That needs the right to manage, which the producer
// itself does not need: if it is missing, that is reported and is no problem.
func (s *doctor) examineEntity(ctx context.Context, e *checkup.Findings) {
	const sessions, duplicates = "sessions", "duplicate detection"
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	found, err := s.Entity.describe(ctx)
	if err != nil {
		e.OK(sessions, "unknown: %s; `projector doctor` tries them", azure.WhyUnanswered(err))
		e.OK(duplicates, "unknown: %s", azure.WhyUnanswered(err))
		return
	}
	const recreate = "recreate it: this can only be set when an entity is created; drain the old one first"
	switch {
	case len(found.none) > 0:
		e.Problem(sessions, recreate, "%s does not require sessions, and without them order is lost", strings.Join(found.none, ", "))
	case len(found.sessions) == 0:
		e.Problem(sessions, "create a subscription that requires sessions", "topic %q has no subscription: published messages are lost", s.Entity.Name)
	default:
		e.OK(sessions, "required by %s", strings.Join(found.sessions, ", "))
	}
	if !found.recognises {
		e.Problem(duplicates, recreate, "%q does not detect duplicates: read models do, other subscribers receive repeats twice", s.Entity.Name)
		return
	}
	e.OK(duplicates, "%q detects duplicates", s.Entity.Name)
}
