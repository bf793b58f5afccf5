package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/sluice-cdc/sluice/shared/servicebus"
)

const (
	filterName = "com.microsoft:session-filter"
	filterCode = uint64(0x137000000C)
	// idleLimit is longer than the time after which the service closes a connection without active
	// links.
	idleLimit = 66 * time.Second
	// freeWithin bounds the wait for a session that was released.
	freeWithin = 20 * time.Second
)

// question is an assumption about the service that no public record of its frames confirms.
type question struct {
	assumption string
	ours       string // the answer of the embedded Service Bus
	ask        func(ctx context.Context, p *place) (string, error)
}

// place is the connection of a question: an AMQP session on it, and two queues with sessions.
type place struct {
	conn    *servicebus.Conn
	session *amqp.Session
	queue   string
	quiet   string // no message is sent to it
	id      string // the session that the question may use
}

var questions = []question{
	{"a session filter is known by the descriptor 0x137000000C", "granted", func(ctx context.Context, p *place) (string, error) {
		return p.granted(ctx, filterCode)
	}},
	{"a session filter is known by its name as descriptor", "granted", func(ctx context.Context, p *place) (string, error) {
		return p.granted(ctx, 0)
	}},
	{"a session filter with the descriptor 0x1370000000C is refused", "amqp:not-allowed", func(ctx context.Context, p *place) (string, error) {
		return p.granted(ctx, 0x1370000000C)
	}},
	{"a request for a session that waits holds its connection open", "open after 1m6s", func(ctx context.Context, p *place) (string, error) {
		go func() { // ends with the connection
			_, _ = p.receiver(ctx, p.quiet, filterCode, nil, idleLimit+10*time.Second)
		}()
		select {
		case <-p.conn.Done():
			return fmt.Sprintf("closed: %v", p.conn.Err()), nil
		case <-time.After(idleLimit):
			return "open after " + idleLimit.String(), nil
		}
	}},
	{"the end of an AMQP session is answered while a request for a session waits on it", "answered", func(ctx context.Context, p *place) (string, error) {
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := p.receiver(short, p.quiet, filterCode, nil, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			return "", fmt.Errorf("the request did not wait: %w", err)
		}
		ending, stop := context.WithTimeout(ctx, 5*time.Second)
		defer stop()
		if err := p.session.Close(ending); err != nil {
			return "not answered in 5 s", nil
		}
		return "answered", nil
	}},
	{"an AMQP session is used again after a link on it was refused", "granted", func(ctx context.Context, p *place) (string, error) {
		if answer, err := p.granted(ctx, 0x1370000000C); err != nil || answer == "granted" {
			return "nothing was refused", err
		}
		return p.granted(ctx, filterCode)
	}},
	{"a sender's link states the room of a batch", "int64", func(ctx context.Context, p *place) (string, error) {
		sender, err := p.session.NewSender(ctx, p.queue, nil)
		if err != nil {
			return "", err
		}
		room := sender.Properties()["com.microsoft:max-message-batch-size"]
		if room == nil {
			return "absent", nil
		}
		return fmt.Sprintf("%T", room), nil
	}},
	{"x-opt-enqueue-sequence-number of a message that was sent to its queue", "absent", func(ctx context.Context, p *place) (string, error) {
		return p.annotation(ctx, "x-opt-enqueue-sequence-number")
	}},
	{"x-opt-message-state of an active message", "absent", func(ctx context.Context, p *place) (string, error) {
		return p.annotation(ctx, "x-opt-message-state")
	}},
	{"delivery count of a message whose session was released", "0", func(ctx context.Context, p *place) (string, error) {
		link, _, err := p.received(ctx)
		if err != nil {
			return "", err
		}
		if err := link.Close(ctx); err != nil {
			return "", err
		}
		if link, _, err = p.free(ctx); err != nil {
			return "", err
		}
		return count(ctx, link)
	}},
	{"delivery count of a message that was released", "0", func(ctx context.Context, p *place) (string, error) {
		link, m, err := p.received(ctx)
		if err == nil {
			err = link.ReleaseMessage(ctx, m)
		}
		if err != nil {
			return "", err
		}
		return count(ctx, link)
	}},
	{"a session is free as soon as its release is answered", "at once", func(ctx context.Context, p *place) (string, error) {
		link, err := p.receiver(ctx, p.queue, filterCode, p.id, 0)
		if err == nil {
			err = link.Close(ctx)
		}
		if err != nil {
			return "", err
		}
		_, after, err := p.free(ctx)
		if err != nil || after > 0 {
			return "after " + after.Round(10*time.Millisecond).String(), err
		}
		return "at once", nil
	}},
	{"sequence number of a dead letter", "of the dead-letter queue's own", func(ctx context.Context, p *place) (string, error) {
		m, dead, err := p.deadLetter(ctx, &amqp.Error{Condition: "com.microsoft:dead-letter"})
		if err != nil {
			return "", err
		}
		if m.Annotations["x-opt-sequence-number"] == dead.Annotations["x-opt-sequence-number"] {
			return "as before", nil
		}
		return "of the dead-letter queue's own", nil
	}},
	{"DeadLetterReason of a message that was rejected without an error", "\"\"", func(ctx context.Context, p *place) (string, error) {
		_, dead, err := p.deadLetter(ctx, nil)
		if err != nil {
			return "", err
		}
		reason, there := dead.ApplicationProperties["DeadLetterReason"]
		if !there {
			return "absent", nil
		}
		return fmt.Sprintf("%q", reason), nil
	}},
}

// receiver opens a link for a session: the one with this id, or the next one if it is nil. With a
// wait of 0 the service decides how long to wait.
func (p *place) receiver(ctx context.Context, queue string, code uint64, id any, wait time.Duration) (*amqp.Receiver, error) {
	o := &amqp.ReceiverOptions{
		SettlementMode: amqp.ReceiverSettleModeSecond.Ptr(),
		Filters:        []amqp.LinkFilter{amqp.NewLinkFilter(filterName, code, id)},
	}
	if wait > 0 {
		o.Properties = map[string]any{"com.microsoft:timeout": uint32(wait.Milliseconds())} //nolint:gosec // of a minute or so
	}
	return p.session.NewReceiver(ctx, queue, o)
}

// granted requests the question's session with a filter that has this descriptor, and returns
// "granted" or the condition of the refusal.
func (p *place) granted(ctx context.Context, code uint64) (string, error) {
	link, err := p.receiver(ctx, p.queue, code, p.id, 0)
	if refused, ok := errors.AsType[*amqp.Error](err); ok {
		return string(refused.Condition), nil
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = link.Close(ctx) }()
	if id := link.LinkSourceFilterValue(filterName); id != p.id {
		return fmt.Sprintf("granted %v", id), nil
	}
	return "granted", nil
}

// received sends a message to the question's session, and returns it as received and locked, with
// its link.
func (p *place) received(ctx context.Context) (*amqp.Receiver, *amqp.Message, error) {
	if err := p.send(ctx, p.id, 1); err != nil {
		return nil, nil, err
	}
	link, err := p.receiver(ctx, p.queue, filterCode, p.id, 0)
	if err != nil {
		return nil, nil, err
	}
	m, err := link.Receive(ctx, nil)
	return link, m, err
}

// send sends messages to a session.
func (p *place) send(ctx context.Context, session string, n int) error {
	sender, err := p.session.NewSender(ctx, p.queue, nil)
	for i := 0; i < n && err == nil; i++ {
		err = sender.Send(ctx, &amqp.Message{
			Properties: &amqp.MessageProperties{GroupID: &session, MessageID: session}, Data: [][]byte{[]byte("probe")},
		}, nil)
	}
	return err
}

func (p *place) annotation(ctx context.Context, name string) (string, error) {
	_, m, err := p.received(ctx)
	if err != nil {
		return "", err
	}
	value, there := m.Annotations[name]
	if !there {
		return "absent", nil
	}
	return fmt.Sprintf("%v", value), nil
}

// free accepts the question's session as soon as it is free, and returns how long that took; 0 if
// the first request was granted.
func (p *place) free(ctx context.Context) (link *amqp.Receiver, after time.Duration, err error) {
	began := time.Now()
	for tries := 0; ; tries++ {
		link, err = p.receiver(ctx, p.queue, filterCode, p.id, 0)
		refused, ok := errors.AsType[*amqp.Error](err)
		switch {
		case err == nil && tries == 0:
			return link, 0, nil
		case err == nil, !ok, refused.Condition != servicebus.CondSessionCannotBeLocked, time.Since(began) > freeWithin:
			return link, time.Since(began), err
		}
	}
}

// count returns the delivery count of the next message.
func count(ctx context.Context, link *amqp.Receiver) (string, error) {
	m, err := link.Receive(ctx, nil)
	if err != nil {
		return "", err
	}
	if m.Header == nil {
		return "0", nil
	}
	return fmt.Sprint(m.Header.DeliveryCount), nil
}

// deadLetter rejects a message with an error, and returns it as it was before and as it is in the
// dead-letter queue.
func (p *place) deadLetter(ctx context.Context, why *amqp.Error) (m, dead *amqp.Message, err error) {
	if err := p.send(ctx, "others", 20); err != nil { // so that sequence numbers of the queue and of its dead-letter queue differ
		return nil, nil, err
	}
	link, m, err := p.received(ctx)
	if err == nil {
		err = link.RejectMessage(ctx, m, why)
	}
	if err != nil {
		return nil, nil, err
	}
	letters, err := p.session.NewReceiver(ctx, p.queue+"/$DeadLetterQueue", &amqp.ReceiverOptions{SettlementMode: amqp.ReceiverSettleModeSecond.Ptr()})
	if err != nil {
		return nil, nil, err
	}
	for {
		dead, err = letters.Receive(ctx, nil)
		if err != nil || dead.Properties != nil && dead.Properties.MessageID == any(p.id) {
			return m, dead, err
		}
		if err := letters.ReleaseMessage(ctx, dead); err != nil {
			return nil, nil, err
		}
	}
}
