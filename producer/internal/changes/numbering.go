package changes

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

var (
	// ErrOtherDeployment reports that the checkpoint's positions are sortable tokens, and the
	// deployment's tokens are not.
	ErrOtherDeployment = errors.New("the checkpoint comes from a deployment with sortable resume tokens, and this one's are not: " +
		"positions of the two cannot be compared; use another STREAM_NAME and new read models")
	// ErrSettingsChanged reports that positions are counted, and the settings that decide what is
	// counted have changed since the checkpoint.
	ErrSettingsChanged = errors.New("PIPELINE, the collection, or with a pipeline FULL_DOCUMENT or FULL_DOCUMENT_BEFORE_CHANGE has changed, " +
		"and on this deployment positions are counted: the same changes would get other positions, and read models would mistake new " +
		"changes for old ones. Restore the former settings; or let a producer with them stop cleanly, and then accept the new ones " +
		"with `producer token renumber`")
	// ErrUnstableFilter reports that positions are counted, and the filter may pass other changes
	// the second time.
	ErrUnstableFilter = errors.New("on this deployment positions are counted, so PIPELINE must pass the same changes every time; " +
		"its $match reads fullDocument or the whole event, and documents are looked up when they are read: set FULL_DOCUMENT and " +
		"FULL_DOCUMENT_BEFORE_CHANGE to default and off (or to required), or match something else")
)

// numbering assigns positions to changes. Positions are compared as plain strings.
//
// If resume tokens are sortable, a position is the token's text, in the token version with which
// the stream began. Otherwise it is an ordinal: a series, and the number of events that the server
// has delivered in it, at a fixed width. The events after a token are always the same, so a leader
// that resumes from a checkpoint counts what its predecessor counted and assigns the same ordinals
// to the same events. If there is no token to resume from (a new stream, lost history), a new
// series begins. Its number is the leader's epoch, which no earlier leader had, so its ordinals are
// larger than all earlier ones. A stream that has begun to count keeps counting.
type numbering struct {
	epoch    int64
	settings string // hash of the settings that decide which events the server delivers
	unstable bool   // the filter may pass other events the second time
}

// ordinal is a counted position. Its text sorts after every token (tokens begin with 82), and in
// the order of the numbers.
type ordinal struct{ series, count int64 }

const ordinalForm = "n%010d.%018d"

// The maxima of the fixed width: at a million events a second the count lasts for 31,000 years.
const (
	maxSeries = 1e10 - 1
	maxCount  = 1e18 - 1
)

func (o ordinal) String() string { return fmt.Sprintf(ordinalForm, o.series, o.count) }

func parseOrdinal(position string) (o ordinal, ok bool) {
	digits, ordinals := strings.CutPrefix(position, "n")
	if !ordinals { // the usual case for every event
		return o, false
	}
	n, err := fmt.Sscanf(digits, "%d.%d", &o.series, &o.count)
	return o, err == nil && n == 2 && o.series >= 0 && o.count >= 0 && o.String() == position
}

// Counted reports whether a position is an ordinal.
func Counted(position string) bool {
	_, ok := parseOrdinal(position)
	return ok
}

// NewSeries returns the position from which a leader or an operator in an epoch continues to count.
// It is larger than all positions of earlier epochs.
func NewSeries(epoch int64) string { return ordinal{series: epoch}.String() }

// check checks, before anything is read, that counting can continue from a checkpoint.
func (n numbering) check(from checkpoint.Progress) error {
	switch {
	case !Counted(from.Position):
		return nil
	case from.Settings != n.settings:
		return ErrSettingsChanged
	case n.unstable:
		return ErrUnstableFilter
	}
	return nil
}

// next returns the identity and the position of the event after at with the given token text. The
// identity is the token's text, translated to the stream's token version.
func (n numbering) next(at checkpoint.Progress, token, operation string) (identity, position string, err error) {
	o, counting, err := n.ordinal(at, token)
	if err != nil {
		return "", "", err
	}
	if !counting {
		identity = token
		if form := at.Form(); form != "" {
			identity, err = translateToken(form, token, operation)
		}
		return identity, afterPosition(capPosition(identity), at.Position), err
	}
	if o.count++; o.count > maxCount || o.series > maxSeries {
		return "", "", fmt.Errorf("count event %v: the position's width is exceeded", o)
	}
	return token, o.String(), nil
}

// idle returns the position of a token without an event, after at.
func (n numbering) idle(at checkpoint.Progress, token string) (string, error) {
	o, counting, err := n.ordinal(at, token)
	if err != nil {
		return "", err
	}
	if counting {
		return o.String(), nil
	}
	position, err := PositionOf(token, at)
	// The token that an upgraded server returns for the last event lacks the operation, and so
	// sorts a little before the event.
	return max(position, at.Position), err
}

func (n numbering) ordinal(at checkpoint.Progress, token string) (o ordinal, counting bool, err error) {
	if o, ok := parseOrdinal(at.Position); ok {
		return o, true, nil
	}
	switch {
	case envelope.Sortable(token):
		return o, false, nil
	case at.Position != "":
		return o, false, ErrOtherDeployment
	case n.unstable:
		return o, false, ErrUnstableFilter
	}
	return ordinal{series: n.epoch}, true, nil
}

// restart returns where reading begins again without a token. A counted stream continues with
// larger ordinals.
func (n numbering) restart(at checkpoint.Progress) checkpoint.Progress {
	fresh := checkpoint.Progress{Published: at.Published}
	if o, ok := parseOrdinal(at.Position); ok {
		fresh.Settings = at.Settings
		if o.series < n.epoch {
			o = ordinal{series: n.epoch}
		}
		fresh.Position = o.String()
	}
	return fresh
}
