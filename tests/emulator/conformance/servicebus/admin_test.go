package servicebus_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// plain sends what the administration client means for https over http.
type plain struct{ http *http.Client }

func (p plain) Do(r *http.Request) (*http.Response, error) {
	r.URL.Scheme = "http"
	return p.http.Do(r)
}

// administered returns a server with its AMQP and its management listener on TCP.
func administered(t *testing.T, cfg servicebus.Config) (*servicebus.Server, *azservicebus.Client, *admin.Client, string) {
	t.Helper()
	s, c := onTCP(t, cfg, servicebus.Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.RunManagement(ctx, l); err != nil {
			t.Errorf("run management: %v", err)
		}
	})
	web := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() {
		web.CloseIdleConnections()
		cancel()
		wg.Wait()
	})
	a, err := admin.NewClientFromConnectionString(servicebus.ConnectionString(l.Addr().String()), &admin.ClientOptions{
		ClientOptions: azcore.ClientOptions{Transport: plain{web}},
	})
	require.NoError(t, err)
	return s, c, a, "http://" + l.Addr().String()
}

func receiveNow(t *testing.T, c *azservicebus.Client, topic, sub string) []string {
	t.Helper()
	r, err := c.NewReceiverForSubscription(topic, sub, nil)
	require.NoError(t, err)
	defer func() { _ = r.Close(t.Context()) }()
	peeked, err := r.PeekMessages(t.Context(), 100, nil)
	require.NoError(t, err)
	var out []string
	for _, m := range peeked {
		text := m.MessageID
		if v, found := m.ApplicationProperties["tag"]; found {
			text += ":" + v.(string)
		}
		out = append(out, text)
	}
	return out
}

func TestRulesSelectAndAnnotate(t *testing.T) {
	_, c, a, _ := administered(t, servicebus.Config{})
	ctx := t.Context()
	_, err := a.CreateTopic(ctx, "events", nil)
	require.NoError(t, err)
	for sub, rule := range map[string]*admin.RuleProperties{
		"all":     nil,
		"none":    {Filter: &admin.FalseFilter{}},
		"red":     {Filter: &admin.SQLFilter{Expression: "color = @want", Parameters: map[string]any{"@want": "red"}}},
		"order":   {Filter: &admin.CorrelationFilter{Subject: new("order"), ApplicationProperties: map[string]any{"color": "blue"}}},
		"tagging": {Filter: &admin.SQLFilter{Expression: "1=1"}, Action: &admin.SQLAction{Expression: "SET tag = color; REMOVE color"}},
	} {
		_, err := a.CreateSubscription(ctx, "events", sub, &admin.CreateSubscriptionOptions{
			Properties: &admin.SubscriptionProperties{DefaultRule: rule},
		})
		require.NoError(t, err, sub)
	}
	// A second rule without an action adds messages, not copies; one with an action adds copies.
	_, err = a.CreateRule(ctx, "events", "red", &admin.CreateRuleOptions{Name: new("also"), Filter: &admin.SQLFilter{Expression: "color IN ('red', 'green')"}})
	require.NoError(t, err)
	_, err = a.CreateRule(ctx, "events", "red", &admin.CreateRuleOptions{
		Name: new("copy"), Filter: &admin.SQLFilter{Expression: "color = 'green'"}, Action: &admin.SQLAction{Expression: "SET tag = 'copy'"},
	})
	require.NoError(t, err)

	s, err := c.NewSender("events", nil)
	require.NoError(t, err)
	for _, color := range []string{"red", "green", "blue"} {
		require.NoError(t, s.SendMessage(ctx, &azservicebus.Message{
			MessageID: new(color), Subject: new("order"), ApplicationProperties: map[string]any{"color": color},
		}, nil))
	}
	require.Equal(t, []string{"red", "green", "blue"}, receiveNow(t, c, "events", "all"))
	require.Empty(t, receiveNow(t, c, "events", "none"))
	require.Equal(t, []string{"red", "green", "green:copy"}, receiveNow(t, c, "events", "red"))
	require.Equal(t, []string{"blue"}, receiveNow(t, c, "events", "order"))
	require.Equal(t, []string{"red:red", "green:green", "blue:blue"}, receiveNow(t, c, "events", "tagging"))
}

func TestForwardingKeepsOrderAndDeadLettersWhatCannotGo(t *testing.T) {
	out := servicebus.Outbound{ForwardTo: "target", LockDuration: time.Minute}
	s, c, a, _ := administered(t, servicebus.Config{Queues: []servicebus.Queue{
		{Name: "target", Outbound: servicebus.Outbound{ForwardDeadLetteredMessagesTo: "graves"}},
		{Name: "graves"},
		{Name: "source", Outbound: out},
		{Name: "loop", Outbound: servicebus.Outbound{ForwardTo: "loop"}},
	}})
	ctx := t.Context()
	send := func(queue string, ids ...string) {
		sender, err := c.NewSender(queue, nil)
		require.NoError(t, err)
		defer func() { _ = sender.Close(ctx) }()
		for _, id := range ids {
			require.NoError(t, sender.SendMessage(ctx, &azservicebus.Message{MessageID: &id}, nil))
		}
	}
	send("source", "1", "2", "3")
	require.Zero(t, s.Stats("source").Active)
	r, err := c.NewReceiverForQueue("target", nil)
	require.NoError(t, err)
	got, err := r.ReceiveMessages(ctx, 3, nil)
	require.NoError(t, err)
	require.Len(t, got, 3)
	for i, m := range got {
		require.Equal(t, string(rune('1'+i)), m.MessageID)
	}
	require.NoError(t, r.DeadLetterMessage(ctx, got[0], &azservicebus.DeadLetterOptions{Reason: new("bad")}))
	graves, err := c.NewReceiverForQueue("graves", nil)
	require.NoError(t, err)
	dead, err := graves.ReceiveMessages(ctx, 1, nil)
	require.NoError(t, err)
	require.Equal(t, "bad", *dead[0].DeadLetterReason)
	require.Equal(t, "target", *dead[0].DeadLetterSource)

	send("loop", "round")
	require.Equal(t, 1, s.Stats("loop").TransferDeadLettered)
	_, err = a.DeleteQueue(ctx, "target", nil)
	require.NoError(t, err)
	send("source", "4")
	transfer, err := c.NewReceiverForQueue("source", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueTransfer})
	require.NoError(t, err)
	lost, err := transfer.ReceiveMessages(ctx, 1, nil)
	require.NoError(t, err)
	require.Equal(t, "4", lost[0].MessageID)
	require.Equal(t, "TransferFailed", *lost[0].DeadLetterReason)
}

func TestAdministrationTakesEffect(t *testing.T) {
	_, c, a, address := administered(t, servicebus.Config{})
	ctx := t.Context()
	answer, err := http.Get(address + "/health")
	require.NoError(t, err)
	text, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	require.NoError(t, err)
	require.Contains(t, string(text), `"status":"healthy"`)
	http.DefaultClient.CloseIdleConnections()

	_, err = a.CreateQueue(ctx, "q", nil)
	require.NoError(t, err)
	_, err = a.CreateQueue(ctx, "Q", nil)
	require.Equal(t, http.StatusConflict, status(t, err))
	s, err := c.NewSender("q", nil)
	require.NoError(t, err)
	require.NoError(t, s.SendMessage(ctx, &azservicebus.Message{Body: []byte("x")}, nil))
	counts, err := a.GetQueueRuntimeProperties(ctx, "q", nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, counts.ActiveMessageCount)

	got, err := a.GetQueue(ctx, "q", nil)
	require.NoError(t, err)
	got.Status = new(admin.EntityStatusSendDisabled)
	_, err = a.UpdateQueue(ctx, "q", got.QueueProperties, nil)
	require.NoError(t, err)
	require.Equal(t, "com.microsoft:entity-disabled", condition(t, s.SendMessage(ctx, &azservicebus.Message{}, nil)))

	// A waiting receiver gets an error when its queue is deleted.
	r, err := c.NewReceiverForQueue("q", nil)
	require.NoError(t, err)
	_, err = r.ReceiveMessages(ctx, 1, nil)
	require.NoError(t, err)
	_, err = a.DeleteQueue(ctx, "q", nil)
	require.NoError(t, err)
	_, err = r.ReceiveMessages(ctx, 1, nil)
	require.Error(t, err)
	gone, err := a.GetQueue(ctx, "q", nil)
	require.NoError(t, err)
	require.Nil(t, gone)

	for name, p := range map[string]*admin.QueueProperties{
		"lock": {LockDuration: new("PT6M")}, "ttl": {DefaultMessageTimeToLive: new("soon")},
		"forward": {ForwardTo: new("nowhere")}, "size": {MaxMessageSizeInKilobytes: new(int64(1024))},
	} {
		_, err := a.CreateQueue(ctx, name, &admin.CreateQueueOptions{Properties: p})
		require.Equal(t, http.StatusBadRequest, status(t, err), name)
	}
}

func status(t *testing.T, err error) int {
	t.Helper()
	e, is := errors.AsType[*azcore.ResponseError](err)
	require.True(t, is, "%v", err)
	return e.StatusCode
}
