package apply

import (
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Project asks the projection for the writes of one change as the applier does, and holds them against the rules of
// package projection. The error of a broken rule, and of a panic, is a [projection.ErrPermanent].
func Project(p projection.Projection, c envelope.Change) ([]projection.Write, error) {
	writes, _, err := project(p, c)
	if err != nil {
		return nil, err
	}
	if _, one := p.(projection.OneDocument); one && !newFold().foldIn(writes) {
		return nil, errNotOneUpdate
	}
	return writes, nil
}
