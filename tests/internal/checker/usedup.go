package checker

import (
	"fmt"
	"slices"

	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// UsedUp is what is known of a run in which deliveries are used up, or messages expire, so that the broker dead-letters some by itself,
// and projectors park aggregates before it does. Nobody knows beforehand which; every event has a type of its own.
type UsedUp struct {
	// Unjudged says that no version tells whether an event was applied; First is the version that aggregates begin with, 0: any.
	Unjudged bool
	First    int64
	// Expires says that messages expire by themselves.
	Expires bool
	// AtRest are aggregates whose events used deliveries up while nothing else was wrong, and projectors knew how many there are.
	AtRest []string
	// Held is the read model before anything was replayed, and Type the type of an event.
	Held *history.Model
	Type func(aggregate string, version int64) string
	// Abandoned are the events that a person gave up, because they had been overtaken and were not applied.
	Abandoned []Given

	judged []Given // by a person
}

// Judge records that a person looked at an event that had been overtaken, once each.
func (u *UsedUp) Judge(aggregate string, version int64, applied bool) {
	g := Given{Aggregate: aggregate, Version: version}
	if slices.Contains(u.judged, g) {
		return
	}
	if u.judged = append(u.judged, g); !applied {
		u.Abandoned = append(u.Abandoned, g)
	}
}

// Judged is how many events a person had to look at.
func (u *UsedUp) Judged() int { return len(u.judged) }

// Holds is how many events of a type a model holds of an aggregate.
func Holds(m *history.Model, aggregate, eventType string) int64 {
	s, _ := m.Of(aggregate)
	return s.Types[eventType]
}

// VersionOf is the version of a message that the broker has accepted; 0 of none.
func (r Run) VersionOf(messageID string) int64 {
	for _, a := range r.Accepted {
		if a.MessageID == messageID {
			return a.Version
		}
	}
	return 0
}

// The reasons with which an aggregate is parked before the broker takes an event out, and with which the broker does. A version that is
// missing because of that parks as well.
const (
	ReasonDeliveries = "DeliveriesUsedUp"
	reasonGap        = "VersionGap"
	reasonTaken      = "MaxDeliveryCountExceeded"
	reasonExpired    = "TTLExpiredException"
)

// letters are those of one aggregate.
type letters struct {
	byVersion map[int64]string // the reason of the first of each version
	parked    int64            // the version that the projector parked first; 0: none
	lowest    int64            // that the broker took out; 0: none
}

// judgeUsedUp looks at every committed event: it is applied, once, or set aside; nothing is applied behind an event that parked its
// aggregate; and what the broker took out is overtaken only where nobody can know.
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
		for n, o := range r.Observed[:min(r.Mended, len(r.Observed))] {
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
			found = append(found, fmt.Errorf("%w: %s: version %d was taken out (%s), and version %d is applied though its version says that one is missing",
				history.ErrReordered, c.Aggregate, c.Version, reason, last[c.Aggregate]))
		}
	}
	return found
}

// add looks at one letter.
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
	case reasonGap, ReasonDeliveries:
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

// stands says whether what parked an aggregate is set aside at all: the broker may have taken out the very message that parks it, which
// was in hand when it did.
func (l *letters) stands(r Run, aggregate string) bool {
	return slices.ContainsFunc(r.Aside, func(m Aside) bool {
		return r.Names(m) == aggregate && m.Reason != reasonParked
	})
}
