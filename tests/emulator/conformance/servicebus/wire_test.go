package servicebus_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// What the clients of other languages send and expect if it differs from the Go SDK.

// node is a request-response pair of links.
type node struct {
	t        *testing.T
	session  *amqp.Session
	requests *amqp.Sender
	replies  *amqp.Receiver
	replyTo  *string
}

func (n *node) ask(app map[string]any, value any) *amqp.Message {
	n.t.Helper()
	require.NoError(n.t, n.requests.Send(n.t.Context(), &amqp.Message{
		Properties: &amqp.MessageProperties{MessageID: "1", ReplyTo: n.replyTo}, ApplicationProperties: app, Value: value,
	}, nil))
	ctx, cancel := context.WithTimeout(n.t.Context(), 10*time.Second)
	defer cancel()
	m, err := n.replies.Receive(ctx, nil)
	require.NoError(n.t, err)
	require.NoError(n.t, n.replies.AcceptMessage(n.t.Context(), m))
	require.Equal(n.t, "1", m.Properties.CorrelationID)
	return m
}

// managing opens $management of an entity on a connection that may do anything with it.
func managing(t *testing.T, w *world, entity string) *node {
	t.Helper()
	x := newCBS(t, w)
	expires := time.Now().Add(time.Hour)
	audience := "amqp://emulator:5672/" + entity
	require.EqualValues(t, 202, x.put("servicebus.windows.net:sastoken", audience, sign(servicebus.RootKey(), audience, expires), expires))
	n := &node{t: t, session: x.session}
	var err error
	n.requests, err = x.session.NewSender(t.Context(), entity+"/$management", nil)
	require.NoError(t, err)
	n.replies, err = x.session.NewReceiver(t.Context(), entity+"/$management", nil)
	require.NoError(t, err)
	return n
}

func (n *node) manage(operation string, body map[string]any) (status int32, condition string, value map[string]any) {
	n.t.Helper()
	m := n.ask(map[string]any{"operation": "com.microsoft:" + operation}, body)
	value, _ = m.Value.(map[string]any)
	status = m.ApplicationProperties["statusCode"].(int32)
	condition, _ = m.ApplicationProperties["errorCondition"].(string)
	return status, condition, value
}

// A request is answered on the link whose address or name it gives, and without either on the only
// link there is.
func TestRequestsAreAnsweredOnTheLinkThatTheyName(t *testing.T) {
	for client, c := range map[string]struct {
		target, name string
		replyTo      *string
		refused      bool
	}{
		"go, .NET and Java":  {target: "here", name: "l", replyTo: new("here")},
		"JavaScript":         {target: "", name: "l", replyTo: new("l")},
		"Python":             {target: "$cbs", name: "l", replyTo: nil},
		"an unknown address": {target: "here", name: "l", replyTo: new("there"), refused: true},
	} {
		t.Run(client, func(t *testing.T) {
			inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
				x := newCBS(t, w)
				require.NoError(t, x.replies.Close(t.Context()))
				replies, err := x.session.NewReceiver(t.Context(), "$cbs", &amqp.ReceiverOptions{TargetAddress: c.target, Name: c.name})
				require.NoError(t, err)
				audience, expires := "amqp://emulator:5672/"+queue, time.Now().Add(time.Hour)
				request := &amqp.Message{
					Properties: &amqp.MessageProperties{MessageID: "1", ReplyTo: c.replyTo}, Value: sign(servicebus.RootKey(), audience, expires),
					ApplicationProperties: map[string]any{"operation": "put-token", "type": "servicebus.windows.net:sastoken", "name": audience},
				}
				err = x.requests.Send(t.Context(), request, nil)
				if c.refused {
					var refused *amqp.Error
					require.ErrorAs(t, err, &refused)
					require.Equal(t, amqp.ErrCondNotAllowed, refused.Condition)
					require.Contains(t, refused.Description, "'put-token' cannot be answered")
					return
				}
				require.NoError(t, err)
				m, err := replies.Receive(t.Context(), nil)
				require.NoError(t, err)
				require.EqualValues(t, 202, m.ApplicationProperties["status-code"])
			})
		})
	}
}

// The condition determines the error that JavaScript and Python throw, and they read the lock token
// beside a deferred message.
func TestManagementAnswersHaveConditionsAndLockTokens(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		w.send(queue, message("", "m"))
		r := w.queueReceiver(queue, nil)
		m := w.receive(r, 1)[0]
		require.NoError(t, r.DeferMessage(t.Context(), m, nil))
		n := managing(t, w, queue)
		number := []int64{*m.SequenceNumber}

		status, _, value := n.manage("peek-message", map[string]any{"from-sequence-number": int64(0), "message-count": int32(1)})
		require.EqualValues(t, 200, status)
		require.NotContains(t, value["messages"].([]any)[0], "lock-token", "it is not locked")

		status, _, value = n.manage("receive-by-sequence-number", map[string]any{"sequence-numbers": number, "receiver-settle-mode": uint32(1)})
		require.EqualValues(t, 200, status)
		token, is := value["messages"].([]any)[0].(map[string]any)["lock-token"].(amqp.UUID)
		require.True(t, is)
		status, _, _ = n.manage("update-disposition", map[string]any{"disposition-status": "completed", "lock-tokens": []amqp.UUID{token}})
		require.EqualValues(t, 200, status)

		for _, c := range []struct {
			operation string
			body      map[string]any
			status    int32
			condition string
		}{
			{"receive-by-sequence-number", map[string]any{"sequence-numbers": number, "receiver-settle-mode": uint32(1)}, 404, "com.microsoft:message-not-found"},
			{"renew-lock", map[string]any{"lock-tokens": []amqp.UUID{token}}, 410, "com.microsoft:message-lock-lost"},
			{"renew-lock", map[string]any{}, 400, "com.microsoft:argument-error"},
			{"make-coffee", map[string]any{}, 501, "amqp:not-implemented"},
		} {
			status, condition, _ := n.manage(c.operation, c.body)
			require.Equal(t, c.status, status, c.operation)
			require.Equal(t, c.condition, condition, c.operation)
		}
	})
}

// The right to listen is enough to manage rules over AMQP, as the SDKs for JavaScript, Java and
// .NET do.
func TestRulesAreManagedOverAMQP(t *testing.T) {
	cfg := servicebus.Config{Topics: []servicebus.Topic{{Name: topic, Subscriptions: []servicebus.Subscription{{Name: subscription}}}}}
	inBubble(t, cfg, servicebus.Options{}, func(t *testing.T, w *world) {
		n := managing(t, w, subPath)
		do := func(operation string, body map[string]any, want int32, why string) {
			t.Helper()
			status, condition, _ := n.manage(operation, body)
			require.Equal(t, want, status)
			require.Equal(t, why, condition)
		}
		red := map[string]any{"rule-name": "red", "rule-description": map[string]any{
			"correlation-filter": map[string]any{"label": "red", "to": nil, "properties": map[string]any{"size": int32(3)}},
			"sql-rule-action":    map[string]any{"expression": "SET painted = 'yes'"},
		}}
		do("add-rule", red, 200, "")
		do("add-rule", red, 409, "com.microsoft:entity-already-exists")
		do("add-rule", map[string]any{"rule-name": "big", "rule-description": map[string]any{"sql-filter": map[string]any{"expression": "size > 10"}}}, 200, "")
		do("add-rule", map[string]any{"rule-name": "odd", "rule-description": map[string]any{"sql-filter": map[string]any{"expression": "size >"}}}, 400, "com.microsoft:argument-error")
		do("remove-rule", map[string]any{"rule-name": "$Default"}, 200, "")
		do("remove-rule", map[string]any{"rule-name": "$Default"}, 404, "amqp:not-found")

		_, _, value := n.manage("enumerate-rules", map[string]any{"skip": int32(0), "top": int32(10)})
		rules := value["rules"].([]any)
		require.Len(t, rules, 2)
		for i, want := range []string{ // the descriptors of a rule, its filter and its action
			"{descriptor: 1335734829060, value: [DescribedType{descriptor: 83483426825, value: [<nil> <nil> <nil> <nil> red <nil> <nil> <nil> map[size:3]]} " +
				"DescribedType{descriptor: 1335734829062, value: [SET painted = 'yes' 20]} red ",
			"{descriptor: 1335734829060, value: [DescribedType{descriptor: 83483426822, value: [size > 10 20]} DescribedType{descriptor: 1335734829061, value: []} big ",
		} {
			require.Contains(t, fmt.Sprint(rules[i].(map[string]any)["rule-description"]), want)
		}

		sized := func(id, subject string, size int) *azservicebus.Message {
			return &azservicebus.Message{MessageID: &id, Subject: &subject, ApplicationProperties: map[string]any{"size": size}}
		}
		w.send(topic, sized("no", "red", 4), sized("red", "red", 3), sized("big", "blue", 11))
		r, err := w.client.NewReceiverForSubscription(topic, subscription, nil)
		require.NoError(t, err)
		got := w.receive(r, 2)
		require.Equal(t, []string{"red", "big"}, ids(got))
		require.Equal(t, "yes", got[0].ApplicationProperties["painted"])
	})
}

// The SDK for Python names an entity by its URL.
func TestAnEntityMayBeNamedByItsURL(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		n := managing(t, w, queue)
		x := newCBS(t, w)
		audience, expires := "amqps://emulator:5672/"+queue, time.Now().Add(time.Hour)
		require.EqualValues(t, 202, x.put("servicebus.windows.net:sastoken", audience, sign(servicebus.RootKey(), audience, expires), expires))
		s, err := x.session.NewSender(t.Context(), audience, nil)
		require.NoError(t, err)
		require.NoError(t, s.Send(t.Context(), amqp.NewMessage([]byte("x")), nil))
		status, _, value := n.manage("peek-message", map[string]any{"from-sequence-number": int64(0), "message-count": int32(1)})
		require.EqualValues(t, 200, status)
		require.Len(t, value["messages"], 1)
	})
}

// In the path of a subscription, "Rules" or nothing follows its name, so a subscription may be
// named Rules.
func TestASubscriptionMayBeNamedLikeItsRules(t *testing.T) {
	cfg := servicebus.Config{Topics: []servicebus.Topic{{Name: topic, Subscriptions: []servicebus.Subscription{{Name: "rules"}}}}}
	inBubble(t, cfg, servicebus.Options{}, func(t *testing.T, w *world) {
		n := managing(t, w, topic+"/Subscriptions/rules")
		status, _, value := n.manage("enumerate-rules", map[string]any{"skip": int32(0), "top": int32(10)})
		require.EqualValues(t, 200, status)
		require.Len(t, value["rules"], 1)
	})
}

// Properties that have a name of the service, but that the service does not know, are refused with
// their name, and so are unknown fields of a request. The properties of the client are its own.
func TestWhatTheServiceDoesNotKnowIsRefusedByName(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		n := managing(t, w, queue)
		for want, app := range map[string]map[string]any{
			"the property 'com.microsoft:priority' of a request": {"operation": "com.microsoft:peek-message", "com.microsoft:priority": "high"},
			"the field 'newest' of 'com.microsoft:peek-message'": {"operation": "com.microsoft:peek-message", "mine": 1},
		} {
			m := n.ask(app, map[string]any{"from-sequence-number": int64(0), "message-count": int32(1), "newest": true})
			require.EqualValues(t, 400, m.ApplicationProperties["statusCode"])
			require.Contains(t, m.ApplicationProperties["statusDescription"], want)
		}
		_, err := n.session.NewReceiver(t.Context(), queue, &amqp.ReceiverOptions{Properties: map[string]any{"com.microsoft:wait": uint32(1000)}})
		var refused *amqp.Error
		require.ErrorAs(t, err, &refused)
		require.Equal(t, amqp.ErrCondNotImplemented, refused.Condition)
		require.Contains(t, refused.Description, "the link property 'com.microsoft:wait' is not supported by this emulator")
		_, err = n.session.NewReceiver(t.Context(), queue, &amqp.ReceiverOptions{Properties: map[string]any{"mine": "x"}})
		require.NoError(t, err, "what is the client's own is not the service's")
	})
}
