package broker

import (
	"errors"
	"fmt"

	"github.com/Azure/go-amqp"

	"github.com/sluice-cdc/sluice/shared/servicebus"
)

// sendError turns the broker's answer to a batch into an error: nil for accepted alone, else errBusy, errCutShort, errUnknown,
// errObjection or [ErrRefused].
func sendError(state amqp.DeliveryState) error {
	rejected, ok := state.(*amqp.StateRejected)
	switch {
	case ok && rejected.Error == nil:
		return fmt.Errorf("%w: rejected without a reason", ErrUnknown)
	case ok:
		return rejectionError(rejected.Error)
	}
	if _, ok := state.(*amqp.StateAccepted); ok {
		return nil
	}
	return fmt.Errorf("%w: %T instead of accepted", ErrUnknown, state) // released or modified: it is not stored
}

// rejectionError reads why a batch was rejected.
func rejectionError(why *amqp.Error) error {
	switch condition := why.Condition; {
	case condition == servicebus.CondServerBusy, condition == amqp.ErrCondResourceLimitExceeded:
		return fmt.Errorf("%w: %w", ErrBusy, why)
	case condition == servicebus.CondOperationCancelled, condition == servicebus.CondTimeout:
		return fmt.Errorf("%w: %w", ErrTimedOut, why)
	case isPermanent(condition): // several partition keys in a batch for a partitioned entity, for example
		return fmt.Errorf("%w: %w", ErrRefused, why)
	}
	return fmt.Errorf("%w: %w: %w", ErrUnknown, ErrObjection, why)
}

// isPermanent says that a condition, where it is about a batch, is about what the batch is.
func isPermanent(condition amqp.ErrCond) bool {
	return condition == amqp.ErrCondMessageSizeExceeded || servicebus.NotUnderstood(condition)
}

// transportError reads an error that came in place of an answer: errUnknown, and errObjection too where the broker ended the link or
// what carries it, unless it does that to anybody now and then.
func transportError(err error) error {
	said := remoteError(err)
	if said == nil {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	switch said.Condition {
	case amqp.ErrCondDetachForced, amqp.ErrCondConnectionForced, servicebus.CondServerBusy, amqp.ErrCondResourceLimitExceeded,
		servicebus.CondOperationCancelled, servicebus.CondTimeout:
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if isPermanent(said.Condition) {
		return fmt.Errorf("%w: %w: %w", ErrUnknown, ErrPermanentObjection, err)
	}
	return fmt.Errorf("%w: %w: %w", ErrUnknown, ErrObjection, err)
}

// remoteError is what the broker said when it ended the link, the session or the connection; nil when it did not, or did not say why.
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

// isSizeExceeded says that a message is larger than the link, or the broker, takes: the one that was sent, and not one of another lane
// for which the link was ended.
func isSizeExceeded(err error) bool {
	said, ok := errors.AsType[*amqp.Error](err)
	return ok && said.Condition == amqp.ErrCondMessageSizeExceeded && remoteError(err) == nil
}
