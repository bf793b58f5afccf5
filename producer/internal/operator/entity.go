package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/sluice-cdc/sluice/shared/azure"
)

// Entity is the topic or queue to which the stream is published.
type Entity struct {
	Name  string
	Queue bool
	// Administer returns a client of Service Bus's administration, or [azure.ErrNotAdministered].
	Administer func() (*admin.Client, error)
}

// entityProperties are the administrative properties of a queue, or of a topic and its
// subscriptions.
type entityProperties struct {
	recognises bool     // it detects duplicates
	sessions   []string // requiring sessions: the queue itself, or subscriptions
	none       []string // not requiring sessions
}

func (p *entityProperties) note(name string, required *bool) {
	if required != nil && *required {
		p.sessions = append(p.sessions, name)
	} else {
		p.none = append(p.none, name)
	}
}

// receivers returns who receives what is published, by name if the administration returns them,
// otherwise the reason why not.
func (e *Entity) receivers(ctx context.Context) string {
	if e.Queue {
		return "queue " + e.Name
	}
	found, err := e.describe(ctx)
	names := append(found.sessions, found.none...)
	switch {
	case err != nil:
		return fmt.Sprintf("%s and every subscription that it has (which those are, is not known here: %s)", e.Name, azure.WhyUnanswered(err))
	case len(names) == 0:
		return e.Name + ", which has no subscription"
	}
	slices.Sort(names)
	return "these subscriptions: " + strings.Join(names, ", ")
}

func (e *Entity) describe(ctx context.Context) (found entityProperties, err error) {
	client, err := e.Administer()
	if err != nil {
		return found, err
	}
	if e.Queue {
		queue, err := client.GetQueue(ctx, e.Name, nil)
		if err != nil || queue == nil {
			return found, cmp.Or(err, errors.New("there is no such queue"))
		}
		found.note(e.Name, queue.RequiresSession)
		found.recognises = queue.RequiresDuplicateDetection != nil && *queue.RequiresDuplicateDetection
		return found, nil
	}
	topic, err := client.GetTopic(ctx, e.Name, nil)
	if err != nil || topic == nil {
		return found, cmp.Or(err, errors.New("there is no such topic"))
	}
	found.recognises = topic.RequiresDuplicateDetection != nil && *topic.RequiresDuplicateDetection
	for pager := client.NewListSubscriptionsPager(e.Name, nil); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return found, err
		}
		for _, subscription := range page.Subscriptions {
			found.note(e.Name+"/"+subscription.SubscriptionName, subscription.RequiresSession)
		}
	}
	return found, nil
}
