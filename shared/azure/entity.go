package azure

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// Entity is what a service receives from: either Topic and Subscription, or Queue. Only this type
// knows which of the two.
type Entity struct{ Topic, Subscription, Queue string }

// Validate requires exactly one kind of entity. The error names the projector's settings.
func (e Entity) Validate() error {
	subscribed := e.Topic != "" || e.Subscription != ""
	switch {
	case subscribed && e.Queue != "":
		return errors.New("SERVICE_BUS_QUEUE: must not be set together with SERVICE_BUS_TOPIC and SERVICE_BUS_SUBSCRIPTION")
	case !subscribed && e.Queue == "":
		return errors.New("SERVICE_BUS_TOPIC: is required, with SERVICE_BUS_SUBSCRIPTION (or SERVICE_BUS_QUEUE instead of both)")
	case subscribed && e.Topic == "":
		return errors.New("SERVICE_BUS_TOPIC: is required with SERVICE_BUS_SUBSCRIPTION")
	case subscribed && e.Subscription == "":
		return errors.New("SERVICE_BUS_SUBSCRIPTION: is required with SERVICE_BUS_TOPIC")
	}
	return nil
}

// String returns the entity for people: QUEUE, or TOPIC/SUBSCRIPTION.
func (e Entity) String() string { return cmp.Or(e.Queue, e.Topic+"/"+e.Subscription) }

// Path returns the entity's address in the namespace.
func (e Entity) Path() string { return cmp.Or(e.Queue, e.Topic+"/Subscriptions/"+e.Subscription) }

// DeadLetters is the last part of the path of a dead-letter queue.
const DeadLetters = "/$DeadLetterQueue"

// Receiver opens a receiver without a session; options may be nil.
func (e Entity) Receiver(client *azservicebus.Client, options *azservicebus.ReceiverOptions) (receiver *azservicebus.Receiver, err error) {
	if e.Queue != "" {
		receiver, err = client.NewReceiverForQueue(e.Queue, options)
	} else {
		receiver, err = client.NewReceiverForSubscription(e.Topic, e.Subscription, options)
	}
	if err != nil {
		return nil, fmt.Errorf("open receiver of %s: %w", e, err)
	}
	return receiver, nil
}

// DeadLetters opens a receiver of the entity's dead-letter queue, which has no sessions.
func (e Entity) DeadLetters(client *azservicebus.Client) (*azservicebus.Receiver, error) {
	receiver, err := e.Receiver(client, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	if err != nil {
		return nil, fmt.Errorf("open dead-letter queue: %w", err)
	}
	return receiver, nil
}

// AcceptNext waits for a session that has messages and locks it.
func (e Entity) AcceptNext(ctx context.Context, client *azservicebus.Client) (session *azservicebus.SessionReceiver, err error) {
	if e.Queue != "" {
		session, err = client.AcceptNextSessionForQueue(ctx, e.Queue, nil)
	} else {
		session, err = client.AcceptNextSessionForSubscription(ctx, e.Topic, e.Subscription, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("accept next session of %s: %w", e, err)
	}
	return session, nil
}

// Accept locks one session, whether it has messages or not.
func (e Entity) Accept(ctx context.Context, client *azservicebus.Client, id string) (session *azservicebus.SessionReceiver, err error) {
	if e.Queue != "" {
		session, err = client.AcceptSessionForQueue(ctx, e.Queue, id, nil)
	} else {
		session, err = client.AcceptSessionForSubscription(ctx, e.Topic, e.Subscription, id, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("accept session %s of %s: %w", id, e, err)
	}
	return session, nil
}

// Sessions lists the sessions that have messages, page by page.
func (e Entity) Sessions(client *azservicebus.Client) *runtime.Pager[azservicebus.ListSessionsResponse] {
	if e.Queue != "" {
		return client.NewListSessionsForQueuePager(e.Queue, nil)
	}
	return client.NewListSessionsForSubscriptionPager(e.Topic, e.Subscription, nil)
}
