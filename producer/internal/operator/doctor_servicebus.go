package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/checkup"
)

// examineServiceBus opens a sender's link and sends nothing.
func (s *Stream) examineServiceBus(ctx context.Context, e *checkup.Findings) {
	const check = "service bus"
	bounded, cancel := s.withTimeout(ctx)
	defer cancel()
	began := time.Now()
	err := s.openSender(bounded)
	if err == nil {
		e.OK(check, "a sender's link to %q opens, in %s with its connection", s.Entity.Name, time.Since(began).Round(time.Millisecond))
		s.examineEntity(ctx, e)
		return
	}
	refusal, _ := errors.AsType[*azservicebus.Error](err)
	switch {
	case refusal != nil && refusal.Code == azservicebus.CodeNotFound:
		e.Problem(check, "create it, or check SERVICE_BUS_TOPIC or SERVICE_BUS_QUEUE; topics and queues share one set of names",
			"the namespace has no entity %q", s.Entity.Name)
	case refusal != nil && refusal.Code == azservicebus.CodeUnauthorizedAccess && s.Checks.LocalAuth:
		e.Problem(check, "check the key and that its rule has Send; where the namespace has local authentication switched off "+
			"(disableLocalAuth), no key is taken: set SERVICE_BUS_NAMESPACE and use an identity; "+
			"and check this machine's clock: a token that is made of the key has expired where it is more than an hour behind",
			"the connection string is not accepted for %q", s.Entity.Name)
	case refusal != nil && refusal.Code == azservicebus.CodeUnauthorizedAccess:
		e.Problem(check, "give it the role Azure Service Bus Data Sender on the entity or the namespace (a new role takes minutes to work)",
			"the identity may not send to %q", s.Entity.Name)
	default:
		e.Problem(check, "check the namespace's name, and that ports 5671 or 443 are open to it; that an identity is signed in; and that a firewall of the "+
			"namespace lets this address in", "no sender's link to %q opens: %v", s.Entity.Name, err)
	}
}

func (s *Stream) openSender(ctx context.Context) error {
	client, err := s.Checks.Dial()
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := s.withTimeout(context.WithoutCancel(ctx))
		defer cancel()
		_ = client.Close(ctx)
	}()
	sender, err := client.NewSender(s.Entity.Name, nil)
	if err != nil {
		return fmt.Errorf("make sender: %w", err)
	}
	_, err = sender.NewMessageBatch(ctx, nil) // opens the link
	return err
}

// examineEntity checks the entity's properties. That needs the right to manage, which the producer
// itself does not need: if it is missing, that is reported and is no problem.
func (s *Stream) examineEntity(ctx context.Context, e *checkup.Findings) {
	const sessions, duplicates = "sessions", "duplicate detection"
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	found, err := s.Entity.describe(ctx)
	if err != nil {
		e.OK(sessions, "unknown: %s; `projector doctor` tries them", azure.WhyUnanswered(err))
		e.OK(duplicates, "unknown: %s", azure.WhyUnanswered(err))
		return
	}
	const recreate = "recreate it: this can only be set when an entity is created; drain the old one first"
	switch {
	case len(found.none) > 0:
		e.Problem(sessions, recreate, "%s does not require sessions, and without them order is lost", strings.Join(found.none, ", "))
	case len(found.sessions) == 0:
		e.Problem(sessions, "create a subscription that requires sessions", "topic %q has no subscription: published messages are lost", s.Entity.Name)
	default:
		e.OK(sessions, "required by %s", strings.Join(found.sessions, ", "))
	}
	if !found.recognises {
		e.Problem(duplicates, recreate, "%q does not detect duplicates: read models do, other subscribers receive repeats twice", s.Entity.Name)
		return
	}
	e.OK(duplicates, "%q detects duplicates", s.Entity.Name)
}
