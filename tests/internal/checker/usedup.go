package checker

import (
	"fmt"
	"slices"

	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// UsedUp is what is known of a run in which messages expire or exhaust their deliveries, so that
// the broker dead-letters some on its own and projectors park aggregates before it does. Which ones
// is not known in advance; every event has a type of its own.
type UsedUp struct {
	// Unjudged means that versions do not show whether an event was applied. First is the version
	// with which aggregates begin; 0 is any.
	Unjudged bool
	First    int64
	// Expires means that messages have a time to live.
	Expires bool
	// AtRest are the aggregates whose events exhausted their deliveries while there was no other
	// fault and projectors knew the maximum.
	AtRest []string
	// Held is the read model before anything was replayed, and Type returns the type of an event.
	Held *history.Model
	Type func(aggregate string, version int64) string
	// Deadly reports whether an event ends every process that has it in hand, and may be parked for
	// it; nil: none does.
	Deadly func(aggregate string, version int64) bool
	// Abandoned are the events that the operator dropped because they had been overtaken and were
	// not applied.
	Abandoned []Given

	judged []Given // by the operator
}

// Judge records, once for each event, that the operator examined an event that had been overtaken.
func (u *UsedUp) Judge(aggregate string, version int64, applied bool) {
	g := Given{Aggregate: aggregate, Version: version}
	if slices.Contains(u.judged, g) {
		return
	}
	if u.judged = append(u.judged, g); !applied {
		u.Abandoned = append(u.Abandoned, g)
	}
}

// Judged returns how many events the operator had to examine.
func (u *UsedUp) Judged() int { return len(u.judged) }

// Holds returns how many events of a type a model contains for an aggregate.
func Holds(m *history.Model, aggregate, eventType string) int64 {
	s, _ := m.Of(aggregate)
	return s.Types[eventType]
}

// VersionOf returns the version of a message that the broker has accepted; 0 if it has accepted
// none.
func (r Run) VersionOf(messageID string) int64 {
	for _, a := range r.Accepted {
		if a.MessageID == messageID {
			return a.Version
		}
	}
	return 0
}

// The reasons with which the projector parks an aggregate before the broker dead-letters an event,
// and with which the broker does so. A version that is missing because of that parks the aggregate
// as well.
const (
	ReasonDeliveries = "DeliveriesUsedUp"
	reasonGap        = "VersionGap"
	reasonTaken      = "MaxDeliveryCountExceeded"
	reasonExpired    = "TTLExpiredException"
)

// letters are the dead letters of one aggregate.
type letters struct {
	byVersion map[int64]string // the reason of the first letter of each version
	parked    int64            // the version that the projector parked first; 0 if none
	lowest    int64            // the lowest version that the broker dead-lettered; 0 if none
}

// judgeUsedUp checks every committed event: it is applied once, or set aside; nothing is applied
// behind an event that parked its aggregate; and an event that the broker dead-lettered is
// overtaken only if no service could have known of it.
func judgeUsedUp(r Run) (found []error) {
	positions := map[string]map[int64]string{}
	for _, a := range r.Accepted {
		if positions[a.Aggregate] == nil {
			positions[a.Aggregate] = map[int64]string{}
		}
		positions[a.Aggregate][a.Version] = a.Position
	}
	aside := map[string]*letters{}
	for _, m := range r.Aside {
		aggregate, version := r.Names(m), r.VersionOf(m.MessageID)
		l := aside[aggregate]
		if l == nil {
			l = &letters{byVersion: map[int64]string{}}
			aside[aggregate] = l
		}
		if err := l.add(r, aggregate, version, m); err != nil {
			found = append(found, err)
		}
	}
	for aggregate, l := range aside {
		if l.parked == 0 {
			continue
		}
		at := positions[aggregate][l.parked]
		for n, o := range r.Observed[:min(r.ObservedBefore, len(r.Observed))] {
			if o.Aggregate == aggregate && o.Position >= at {
				found = append(found, fmt.Errorf("%w: change %d of the read model: %s went to position %s though version %d at %s parked it",
					ErrPoison, n, aggregate, o.Position, l.parked, at))
				break
			}
		}
	}
	if r.Unrest != "" {
		return found
	}
	last, first := map[string]int64{}, map[string]int64{} // versions that are applied
	for _, c := range r.Committed {
		if Holds(r.UsedUp.Held, c.Aggregate, r.UsedUp.Type(c.Aggregate, c.Version)) > 0 {
			last[c.Aggregate] = c.Version
			if first[c.Aggregate] == 0 {
				first[c.Aggregate] = c.Version
			}
		}
	}
	for _, c := range r.Committed {
		held, reason := Holds(r.UsedUp.Held, c.Aggregate, r.UsedUp.Type(c.Aggregate, c.Version)), ""
		if l := aside[c.Aggregate]; l != nil {
			reason = l.byVersion[c.Version]
		}
		overtaken := held == 0 && last[c.Aggregate] > c.Version
		known := !r.UsedUp.Unjudged && (first[c.Aggregate] < c.Version || r.UsedUp.First > 0)
		switch {
		case reason == reasonTaken && slices.Contains(r.UsedUp.AtRest, c.Aggregate):
			found = append(found, fmt.Errorf("%w: %s: version %d was taken out by the broker (%s), and nothing kept projectors from parking it before",
				ErrPoison, c.Aggregate, c.Version, reason))
		case held > 1:
			found = append(found, fmt.Errorf("%w: %s: version %d is applied %d times", history.ErrDoubled, c.Aggregate, c.Version, held))
		case held == 0 && reason == "":
			found = append(found, fmt.Errorf("%w: %s: version %d is neither applied nor set aside", history.ErrLost, c.Aggregate, c.Version))
		case overtaken && reason != reasonTaken && reason != reasonExpired:
			found = append(found, fmt.Errorf("%w: %s: version %d is set aside as %s, and version %d is applied",
				history.ErrReordered, c.Aggregate, c.Version, reason, last[c.Aggregate]))
		case overtaken && known:
			found = append(found, fmt.Errorf("%w: %s: version %d was taken out (%s), and version %d is applied although its version shows that one is missing",
				history.ErrReordered, c.Aggregate, c.Version, reason, last[c.Aggregate]))
		}
	}
	return found
}

// add records one dead letter.
func (l *letters) add(r Run, aggregate string, version int64, m Aside) error {
	if _, seen := l.byVersion[version]; !seen {
		l.byVersion[version] = m.Reason
	}
	switch m.Reason {
	case reasonTaken, reasonExpired:
		if l.lowest == 0 || version < l.lowest {
			l.lowest = version
		}
		return nil
	case reasonParked:
		if l.parked == 0 && !l.stands(r, aggregate) {
			return fmt.Errorf("%w: %s: version %d is set aside behind nothing", ErrSkipped, aggregate, version)
		}
		return nil
	case reasonGap, ReasonDeliveries, ReasonEnded:
		if m.Reason == ReasonEnded && (r.UsedUp.Deadly == nil || !r.UsedUp.Deadly(aggregate, version)) {
			return fmt.Errorf("%w: %s: version %d is parked as %s, and ends no process", ErrSkipped, aggregate, version, m.Reason)
		}
		if m.Reason == reasonGap && (l.lowest == 0 || l.lowest > version) {
			return fmt.Errorf("%w: %s: version %d is parked as a gap, and nothing before it is missing", ErrSkipped, aggregate, version)
		}
		if l.parked == 0 || version < l.parked {
			l.parked = version
		}
		return nil
	}
	return fmt.Errorf("%w: dead-lettered: version %d of %s: %s: %s", ErrSkipped, version, aggregate, m.Reason, m.Description)
}

// stands reports whether the event that parked an aggregate is set aside at all: the broker may
// have dead-lettered that very message while the projector was handling it.
func (l *letters) stands(r Run, aggregate string) bool {
	return slices.ContainsFunc(r.Aside, func(m Aside) bool {
		return r.Names(m) == aggregate && m.Reason != reasonParked
	})
}
