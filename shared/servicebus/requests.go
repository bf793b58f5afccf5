package servicebus

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/go-amqp"
)

// closeTimeout bounds the closing of links that are no longer needed.
const closeTimeout = 2 * time.Second

// requests is a pair of links on a node that answers requests: $cbs, or an entity's $management.
type requests struct {
	reading  chan struct{} // holds a value while a caller reads answers, for all callers that wait for one
	session  *amqp.Session
	sender   *amqp.Sender
	receiver *amqp.Receiver
	replies  string      // the address that answers come to
	broken   atomic.Bool // the links cannot be used any more

	mu      sync.Mutex                      // never held while the network is waited for
	waiting map[string]chan<- *amqp.Message // for the answers to requests, by the requests' ids; guarded by mu
}

// errDetached is a request that was not sent or not answered, because its links were detached.
var errDetached = errors.New("the links are detached")

// openRequests costs three round trips.
func openRequests(ctx context.Context, conn *amqp.Conn, node string) (_ *requests, err error) {
	r := &requests{reading: make(chan struct{}, 1), replies: "replies-" + rand.Text(), waiting: map[string]chan<- *amqp.Message{}}
	if r.session, err = conn.NewSession(ctx, nil); err != nil {
		return nil, fmt.Errorf("begin an AMQP session for %s: %w", node, err)
	}
	if r.sender, err = r.session.NewSender(ctx, node, nil); err == nil {
		r.receiver, err = r.session.NewReceiver(ctx, node, &amqp.ReceiverOptions{
			TargetAddress:             r.replies,
			Credit:                    10,
			SettlementMode:            amqp.ReceiverSettleModeFirst.Ptr(),
			RequestedSenderSettleMode: amqp.SenderSettleModeSettled.Ptr(),
		})
	}
	if err != nil {
		r.closeSoon(ctx)
		return nil, fmt.Errorf("open links to %s: %w", node, err)
	}
	return r, nil
}

// closeSoon closes the links, even if ctx has ended, and does not wait for long.
func (r *requests) closeSoon(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = r.session.Close(ctx)
}

// ask sends a request and returns the body of its answer; several may be under way. Errors: a
// [*StatusError] if the node refuses, [errDetached]. After any error but a refusal the links may be
// broken.
func (r *requests) ask(ctx context.Context, properties map[string]any, body any) (any, error) {
	id, answered := rand.Text(), make(chan *amqp.Message, 1)
	r.mu.Lock()
	r.waiting[id] = answered
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.waiting, id)
	}()
	request := &amqp.Message{
		Properties:            &amqp.MessageProperties{MessageID: id, ReplyTo: &r.replies},
		ApplicationProperties: properties,
		Value:                 body,
	}
	if err := r.send(ctx, request); err != nil {
		r.broken.Store(true)
		return nil, fmt.Errorf("send a request: %w", err)
	}
	for {
		select {
		case answer := <-answered:
			return read(answer)
		case r.reading <- struct{}{}:
			err := r.readOne(ctx, answered)
			<-r.reading
			if err != nil {
				return nil, fmt.Errorf("wait for an answer: %w", detached(ctx, err))
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for an answer: %w", context.Cause(ctx))
		}
	}
}

// readOne hands the next answer to the goroutine that waits for it, unless the caller's is there.
// An answer to a request that timed out is skipped. The caller has put a value into reading.
func (r *requests) readOne(ctx context.Context, own <-chan *amqp.Message) error {
	if len(own) > 0 {
		return nil
	}
	answer, err := r.receiver.Receive(ctx, nil)
	if err != nil || answer.Properties == nil {
		return err
	}
	id, _ := answer.Properties.CorrelationID.(string)
	r.mu.Lock()
	defer r.mu.Unlock()
	if waiting := r.waiting[id]; waiting != nil {
		waiting <- answer // it has room for the one answer
		delete(r.waiting, id)
	}
	return nil
}

// detached adds [errDetached] to an error of the links, unless ctx has ended.
func detached(ctx context.Context, err error) error {
	_, link := errors.AsType[*amqp.LinkError](err)
	_, session := errors.AsType[*amqp.SessionError](err)
	if ctx.Err() == nil && (link || session) {
		return fmt.Errorf("%w: %w", errDetached, err)
	}
	return err
}

func (r *requests) send(ctx context.Context, request *amqp.Message) error {
	receipt, err := Send(ctx, r.sender, request)
	if err != nil {
		return detached(ctx, err)
	}
	state, err := receipt.Wait(ctx)
	if rejected, ok := state.(*amqp.StateRejected); ok && rejected.Error != nil {
		return rejected.Error
	} else if ok {
		return errors.New("the request is rejected without a reason")
	}
	return err
}

func read(answer *amqp.Message) (any, error) {
	status := StatusError{}
	for _, name := range []string{"status-code", "statusCode"} {
		if code, ok := answer.ApplicationProperties[name].(int32); ok {
			status.Code = int(code)
		}
	}
	for _, name := range []string{"status-description", "statusDescription"} {
		if text, ok := answer.ApplicationProperties[name].(string); ok {
			status.Description = text
		}
	}
	switch condition := answer.ApplicationProperties["errorCondition"].(type) {
	case string:
		status.Condition = amqp.ErrCond(condition)
	case amqp.ErrCond:
		status.Condition = condition
	}
	switch {
	case status.Code == 0:
		return nil, errors.New("read an answer: it has no status")
	case status.Code/100 != 2:
		return nil, &status
	}
	return answer.Value, nil
}

// StatusError is the refusal of a request.
type StatusError struct {
	Code        int // as HTTP's
	Condition   amqp.ErrCond
	Description string
}

func (e *StatusError) Error() string {
	if e.Condition != "" {
		return fmt.Sprintf("Service Bus answered %d %s: %s", e.Code, e.Condition, e.Description)
	}
	return fmt.Sprintf("Service Bus answered %d: %s", e.Code, e.Description)
}
