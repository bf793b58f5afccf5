package operator

import (
	"context"

	"github.com/sluice-cdc/sluice/shared/checkup"
	"github.com/sluice-cdc/sluice/shared/commandline"
)

// examineTypes checks for versions and aggregate ids with misleading types.
func (s *doctor) examineTypes(ctx context.Context, e *checkup.Findings) {
	const check = "types"
	bounded, cancel := s.withTimeout(ctx)
	defer cancel()
	sample, err := s.Checks.Types(bounded)
	if err != nil {
		e.OK(check, "unknown: %v", err)
		return
	}
	looked := commandline.Count(sample.Documents, "document") + " examined"
	if sample.Versions != "" {
		e.Problem(check, sample.VersionRemedy, "%s (%s)", sample.Versions, looked)
	}
	if sample.Aggregates != "" {
		e.Problem(check, sample.AggregateRemedy, "%s (%s)", sample.Aggregates, looked)
	}
	if sample.Versions == "" && sample.Aggregates == "" {
		e.OK(check, "%s: versions are integers or absent, and no two aggregate ids of different types have the same text", looked)
	}
}
