package sessions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/shared/azure"
)

// sdkAcceptor accepts sessions through the SDK, one at a time on its client: the SDK puts tokens
// for each under a mutex that it holds while it waits for the network, so a second accept would
// wait there, with no context to end the wait.
type sdkAcceptor struct {
	entity    azure.Entity
	clients   *sharedConn[*azservicebus.Client]
	accepting chan struct{} // holds a token during an accept
	backlog   *backlogEstimate
	budget    *byteBudget
}

func newSDK(entity azure.Entity, dial func() (*azservicebus.Client, error), within time.Duration, backlog *backlogEstimate, budget *byteBudget) *sdkAcceptor {
	return &sdkAcceptor{
		entity: entity, backlog: backlog, budget: budget, accepting: make(chan struct{}, 1),
		clients: &sharedConn[*azservicebus.Client]{
			open: func(context.Context) (*azservicebus.Client, error) {
				client, err := dial()
				if err != nil {
					return nil, fmt.Errorf("make a Service Bus client: %w", err)
				}
				return client, nil
			},
			alive:   func(*azservicebus.Client) bool { return true },                                  // its connection is made again when it is used
			shut:    func(ctx context.Context, client *azservicebus.Client) { _ = client.Close(ctx) }, // its connection ends in any case
			within:  within,
			opening: make(chan struct{}, 1),
		},
	}
}

func (s *sdkAcceptor) accept(ctx context.Context) (link, func(context.Context), error) {
	select {
	case s.accepting <- struct{}{}:
		defer func() { <-s.accepting }()
	case <-ctx.Done():
		return nil, nil, errNoSession
	}
	client, err := s.clients.acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	receiver, err := s.entity.AcceptNext(ctx, client.conn)
	if err != nil {
		client.release(ctx, lost(err))
		if timedOut(err) {
			return nil, nil, errNoSession
		}
		return nil, nil, err
	}
	session := NewSDKSession(receiver)
	release := func(ctx context.Context) { client.release(ctx, session.Broken()) }
	return &sdkLink{SDKSession: session, backlog: s.backlog, budget: s.budget}, release, nil
}

func (s *sdkAcceptor) close(ctx context.Context) { s.clients.close(ctx) }

// lost reports whether an error may mean that the connection is broken. An answer of the broker
// does not.
func lost(err error) bool {
	e, ok := errors.AsType[*azservicebus.Error](err)
	return ok && (e.Code == azservicebus.CodeConnectionLost || e.Code == azservicebus.CodeClosed)
}

// timedOut reports whether an accept ended because no session was waiting: by the broker's answer,
// or by our own deadline.
func timedOut(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	e, ok := errors.AsType[*azservicebus.Error](err)
	return ok && e.Code == azservicebus.CodeTimeout
}
