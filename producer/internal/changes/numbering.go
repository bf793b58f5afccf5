package changes

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

var (
	// ErrOtherDeployment: the checkpoint's positions are sortable tokens, and the deployment's tokens are not.
	ErrOtherDeployment = errors.New("the checkpoint comes from a deployment with sortable resume tokens, and this one's are not: " +
		"positions of the two cannot be compared; use another STREAM_NAME and new read models")
	// ErrSettingsChanged: positions are counted, and what is counted has changed since the checkpoint.
	ErrSettingsChanged = errors.New("PIPELINE, the collection, or with a pipeline FULL_DOCUMENT or FULL_DOCUMENT_BEFORE_CHANGE has changed, " +
		"and on this deployment positions are counted: the same changes would get other positions, and read models would take new " +
		"changes for old ones. Put the former settings back; or let a producer with them stop cleanly, and then accept the new ones " +
		"with `producer token renumber`")
	// ErrUnstableFilter: positions are counted, and the filter may count differently the second time.
	ErrUnstableFilter = errors.New("on this deployment positions are counted, so PIPELINE must let the same changes through every time; " +
		"its $match looks at fullDocument or at the whole event, and documents are looked up when they are read: set FULL_DOCUMENT and " +
		"FULL_DOCUMENT_BEFORE_CHANGE to default and off (or to required), or match something else")
)

// numbering gives changes their positions, which compare by plain string comparison.
//
// Where resume tokens are sortable, a position is the token's text, in the form in which the stream began. Elsewhere it is an ordinal: the series, then how many
// events the server has delivered in it, at a fixed width. The stream that follows a token is always the same, so a leader
// that resumes from a checkpoint counts what its predecessor counted, and gives the same events the same ordinals. Where
// there is no token to resume from (a new stream, lost history), a new series begins, named by the leader's epoch, which no
// leader before it had: so its ordinals are larger than all that were ever given. A stream that has begun to count goes on
// counting.
type numbering struct {
	epoch    int64
	settings string // hash of what decides which events the server delivers
	unstable bool   // the filter may decide otherwise the second time
}

// ordinal is a counted position. Its text sorts behind every token, which begins with 82, and like the numbers.
type ordinal struct{ series, count int64 }

const ordinalForm = "n%010d.%018d"

// The most that fits the fixed width: at a million events a second the count lasts for 31,000 years.
const (
	maxSeries = 1e10 - 1
	maxCount  = 1e18 - 1
)

func (o ordinal) String() string { return fmt.Sprintf(ordinalForm, o.series, o.count) }

func parseOrdinal(position string) (o ordinal, ok bool) {
	digits, ordinals := strings.CutPrefix(position, "n")
	if !ordinals { // nearly always: this is asked for every event
		return o, false
	}
	n, err := fmt.Sscanf(digits, "%d.%d", &o.series, &o.count)
	return o, err == nil && n == 2 && o.series >= 0 && o.count >= 0 && o.String() == position
}

// Counted says that a position is an ordinal.
func Counted(position string) bool {
	_, ok := parseOrdinal(position)
	return ok
}

// NewSeries is the position from which a leader or an operator in an epoch counts on: larger than all of epochs before.
func NewSeries(epoch int64) string { return ordinal{series: epoch}.String() }

// accept checks, before anything is read, that counting can go on from a checkpoint.
func (n numbering) accept(from checkpoint.Progress) error {
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

// event is what the next event after at goes by, whose token has this text: the text that tells it from all others, which is the
// token's in the form of the stream, and its position.
func (n numbering) event(at checkpoint.Progress, token, operation string) (identity, position string, err error) {
	o, counting, err := n.counts(at, token)
	if err != nil {
		return "", "", err
	}
	if !counting {
		identity = token
		if form := envelope.TokenForm(at.Position); form != "" {
			identity, err = inForm(form, token, operation)
		}
		return identity, behind(bounded(identity), at.Position), err
	}
	if o.count++; o.count > maxCount || o.series > maxSeries {
		return "", "", fmt.Errorf("count event %v: the position's width is exceeded", o)
	}
	return token, o.String(), nil
}

// idle is the position at a token without an event, after at.
func (n numbering) idle(at checkpoint.Progress, token string) (string, error) {
	o, counting, err := n.counts(at, token)
	if err != nil {
		return "", err
	}
	if counting {
		return o.String(), nil
	}
	position, err := PositionOf(token, at.Position)
	// A token that an upgraded server writes of the last event does not tell the operation, and so stands a little before the event.
	return max(position, at.Position), err
}

func (n numbering) counts(at checkpoint.Progress, token string) (o ordinal, counting bool, err error) {
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

// restart is where reading begins again without a token: what is counted goes on counting, with larger ordinals.
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
