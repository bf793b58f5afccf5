package publish

import (
	"errors"
	"fmt"

	"github.com/Azure/go-amqp"

	"github.com/sluice-cdc/sluice/shared/servicebus"
)

// judge turns the broker's answer to a batch into an error: nil for accepted alone, else errBusy, errCutShort, errUnknown or
// [ErrRefused].
func judge(state amqp.DeliveryState) error {
	rejected, ok := state.(*amqp.StateRejected)
	switch {
	case ok && rejected.Error == nil:
		return fmt.Errorf("%w: rejected without a reason", errUnknown)
	case ok:
		return refusal(rejected.Error)
	}
	if _, ok := state.(*amqp.StateAccepted); ok {
		return nil
	}
	return fmt.Errorf("%w: %T instead of accepted", errUnknown, state) // released or modified: it is not stored
}

// refusal reads why a batch was rejected.
func refusal(why *amqp.Error) error {
	verdict := errUnknown
	switch condition := why.Condition; {
	case condition == servicebus.CondServerBusy, condition == amqp.ErrCondResourceLimitExceeded:
		verdict = errBusy
	case condition == servicebus.CondOperationCancelled, condition == servicebus.CondTimeout:
		verdict = errCutShort
	case condition == amqp.ErrCondMessageSizeExceeded, servicebus.NotUnderstood(condition):
		verdict = ErrRefused // several partition keys in a batch for a partitioned entity, for example
	}
	return fmt.Errorf("%w: %w", verdict, why)
}

// exceedsSize says that a message is larger than the link, or the broker, takes.
func exceedsSize(err error) bool {
	said, ok := errors.AsType[*amqp.Error](err)
	return ok && said.Condition == amqp.ErrCondMessageSizeExceeded
}
