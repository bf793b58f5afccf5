package apply

import (
	"reflect"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// ProjectTwice returns the projection's writes for a change in two guesses at what its document
// does not hold, checked as by [Project]; for a [projection.OneDocument], [Fold.Add] checks the
// rest. If the projection gives the same for both, they are one slice.
func ProjectTwice(p projection.Projection, c, guess envelope.Change) (writes, guessed []projection.Write, err error) {
	given, writes, err := project(p, c)
	if err != nil {
		return nil, nil, err
	}
	again, err := unchecked(p, guess)
	if err == nil && reflect.DeepEqual(given, again) {
		return writes, writes, nil
	}
	_, guessed, err = project(p, guess)
	return writes, guessed, err
}

// unchecked returns the writes of one event as the projection gives them, unchecked.
func unchecked(p projection.Projection, c envelope.Change) (given []projection.Write, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = recovered(r)
		}
	}()
	return p.Project(projection.Event{Change: c})
}
