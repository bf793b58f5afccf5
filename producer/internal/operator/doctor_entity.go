package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/checkup"
)

// entity holds the administrative properties of a queue, or of a topic and its subscriptions.
type entity struct {
	recognises bool     // it detects duplicates
	sessions   []string // requiring sessions: the queue itself, or subscriptions
	none       []string // not requiring sessions
}

// examineEntity checks the entity's properties. That needs the right to manage, which the producer
// itself does not need: if it is missing, that is reported and is no problem.
func (s *Stream) examineEntity(ctx context.Context, e *checkup.Findings) {
	const sessions, duplicates = "sessions", "duplicate detection"
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	found, err := s.describe(ctx)
	if err != nil {
		e.OK(sessions, "unknown: %s; `projector doctor` tries them", azure.Untold(err))
		e.OK(duplicates, "unknown: %s", azure.Untold(err))
		return
	}
	const anew = "create it anew: this can only be set when an entity is created; drain the old one first"
	switch {
	case len(found.none) > 0:
		e.Problem(sessions, anew, "%s does not require sessions, and without them order is lost", strings.Join(found.none, ", "))
	case len(found.sessions) == 0:
		e.Problem(sessions, "create a subscription that requires sessions", "topic %q has no subscription: published messages are lost", s.Entity)
	default:
		e.OK(sessions, "required by %s", strings.Join(found.sessions, ", "))
	}
	if !found.recognises {
		e.Problem(duplicates, anew, "%q does not detect duplicates: read models do, other subscribers receive repeats twice", s.Entity)
		return
	}
	e.OK(duplicates, "%q detects duplicates", s.Entity)
}

// receivers returns who receives what is published, by name if the administration returns them,
// otherwise the reason why not.
func (s *Stream) receivers(ctx context.Context) string {
	if s.Queue {
		return "queue " + s.Entity
	}
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	found, err := s.describe(ctx)
	names := append(found.sessions, found.none...)
	switch {
	case err != nil:
		return fmt.Sprintf("%s and every subscription that it has (which those are, is not known here: %s)", s.Entity, azure.Untold(err))
	case len(names) == 0:
		return s.Entity + ", which has no subscription"
	}
	slices.Sort(names)
	return "these subscriptions: " + strings.Join(names, ", ")
}

func (s *Stream) describe(ctx context.Context) (found entity, err error) {
	client, err := s.Administer()
	if err != nil {
		return found, err
	}
	note := func(name string, required *bool) {
		if required != nil && *required {
			found.sessions = append(found.sessions, name)
		} else {
			found.none = append(found.none, name)
		}
	}
	if s.Queue {
		queue, err := client.GetQueue(ctx, s.Entity, nil)
		switch {
		case err != nil:
			return found, err
		case queue == nil:
			return found, errors.New("there is no such queue")
		}
		note(s.Entity, queue.RequiresSession)
		found.recognises = queue.RequiresDuplicateDetection != nil && *queue.RequiresDuplicateDetection
		return found, nil
	}
	topic, err := client.GetTopic(ctx, s.Entity, nil)
	switch {
	case err != nil:
		return found, err
	case topic == nil:
		return found, errors.New("there is no such topic")
	}
	found.recognises = topic.RequiresDuplicateDetection != nil && *topic.RequiresDuplicateDetection
	for pager := client.NewListSubscriptionsPager(s.Entity, nil); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return found, err
		}
		for _, subscription := range page.Subscriptions {
			note(s.Entity+"/"+subscription.SubscriptionName, subscription.RequiresSession)
		}
	}
	return found, nil
}
