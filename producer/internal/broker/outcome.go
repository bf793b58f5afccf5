package broker

import (
	"errors"
	"fmt"

	"github.com/Azure/go-amqp"

	"github.com/sluice-cdc/sluice/shared/servicebus"
)

// sendError converts the broker's outcome of a transfer into an error: nil only for accepted,
// otherwise [ErrBusy], [ErrTimedOut], [ErrUnknown], [ErrObjection] or [ErrRefused].
func sendError(state amqp.DeliveryState) error {
	switch state := state.(type) {
	case *amqp.StateAccepted:
		return nil
	case *amqp.StateRejected:
		if state.Error == nil {
			return fmt.Errorf("%w: rejected without a reason", ErrUnknown)
		}
		return rejectionError(state.Error)
	}
	return fmt.Errorf("%w: %T instead of accepted", ErrUnknown, state) // released or modified: the batch is not stored
}

// rejectionError converts the error of a rejected transfer.
func rejectionError(why *amqp.Error) error {
	switch condition := why.Condition; {
	case condition == servicebus.CondServerBusy, condition == amqp.ErrCondResourceLimitExceeded:
		return fmt.Errorf("%w: %w", ErrBusy, why)
	case condition == servicebus.CondOperationCancelled, condition == servicebus.CondTimeout:
		return fmt.Errorf("%w: %w", ErrTimedOut, why)
	case isPermanent(condition): // for example several partition keys in a batch for a partitioned entity
		return fmt.Errorf("%w: %w", ErrRefused, why)
	}
	return fmt.Errorf("%w: %w: %w", ErrUnknown, ErrObjection, why)
}

// isPermanent reports whether a condition, in a response to a batch, concerns the batch's content.
func isPermanent(condition amqp.ErrCond) bool {
	return condition == amqp.ErrCondMessageSizeExceeded || servicebus.NotUnderstood(condition)
}

// transportError classifies an error that replaced the broker's response. It is always
// [ErrUnknown]. It is [ErrObjection] as well if the broker closed the link, session or connection
// for a reason other than routine maintenance or load.
func transportError(err error) error {
	answer := remoteError(err)
	if answer == nil {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	switch answer.Condition {
	case amqp.ErrCondDetachForced, amqp.ErrCondConnectionForced, servicebus.CondServerBusy, amqp.ErrCondResourceLimitExceeded,
		servicebus.CondOperationCancelled, servicebus.CondTimeout:
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if isPermanent(answer.Condition) {
		return fmt.Errorf("%w: %w: %w", ErrUnknown, ErrPermanentObjection, err)
	}
	return fmt.Errorf("%w: %w: %w", ErrUnknown, ErrObjection, err)
}

// openError classifies an error of opening a link: it is [ErrBusy] if the broker opens none because
// of its load.
func openError(err error) error {
	answer := remoteError(err)
	if answer == nil {
		answer, _ = errors.AsType[*amqp.Error](err)
	}
	if answer != nil && answer.Condition == servicebus.CondServerBusy {
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return err
}

// remoteError returns the error with which the broker closed the link, the session or the
// connection. It returns nil if the broker closed none of them, or gave no reason.
func remoteError(err error) *amqp.Error {
	if link, ok := errors.AsType[*amqp.LinkError](err); ok {
		return link.RemoteErr
	}
	if session, ok := errors.AsType[*amqp.SessionError](err); ok {
		return session.RemoteErr
	}
	if conn, ok := errors.AsType[*amqp.ConnError](err); ok {
		return conn.RemoteErr
	}
	return nil
}

// isSizeExceeded reports whether the message that was sent is larger than the link or the broker
// accepts. It returns false for a link that was closed because of another lane's message.
func isSizeExceeded(err error) bool {
	answer, ok := errors.AsType[*amqp.Error](err)
	return ok && answer.Condition == amqp.ErrCondMessageSizeExceeded && remoteError(err) == nil
}
