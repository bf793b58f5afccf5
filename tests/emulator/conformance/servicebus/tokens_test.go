package servicebus_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// sign makes a shared access signature.
func sign(k servicebus.Key, audience string, expires time.Time) string {
	encoded, seconds := url.QueryEscape(audience), fmt.Sprint(expires.Unix())
	mac := hmac.New(sha256.New, []byte(k.Value))
	mac.Write([]byte(encoded + "\n" + seconds))
	signature := url.QueryEscape(base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return fmt.Sprintf("SharedAccessSignature sr=%s&sig=%s&se=%s&skn=%s", encoded, signature, seconds, k.Name)
}

// cbs puts a token on a connection and gives the status that answers.
type cbs struct {
	w        *world
	conn     *amqp.Conn
	session  *amqp.Session
	requests *amqp.Sender
	replies  *amqp.Receiver
}

func newCBS(t *testing.T, w *world) *cbs {
	t.Helper()
	c, err := w.dial(t.Context())
	require.NoError(t, err)
	client, err := amqp.NewConn(t.Context(), c, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	x := &cbs{w: w, conn: client}
	x.session, err = client.NewSession(t.Context(), nil)
	require.NoError(t, err)
	x.requests, err = x.session.NewSender(t.Context(), "$cbs", nil)
	require.NoError(t, err)
	x.replies, err = x.session.NewReceiver(t.Context(), "$cbs", &amqp.ReceiverOptions{TargetAddress: "me"})
	require.NoError(t, err)
	return x
}

func (x *cbs) put(kind, audience, token string, expires time.Time) int32 {
	x.w.t.Helper()
	return x.putUntil(kind, audience, token, fmt.Sprint(expires.Unix()))
}

func (x *cbs) putUntil(kind, audience, token string, expiration any) int32 {
	t := x.w.t
	t.Helper()
	require.NoError(t, x.requests.Send(t.Context(), &amqp.Message{
		Properties: &amqp.MessageProperties{MessageID: "1", ReplyTo: new("me")},
		ApplicationProperties: map[string]any{
			"operation": "put-token", "type": kind, "name": audience, "expiration": expiration,
		},
		Value: token,
	}, nil))
	m, err := x.replies.Receive(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, x.replies.AcceptMessage(t.Context(), m))
	return m.ApplicationProperties["status-code"].(int32)
}

func TestTokensAreAcceptedOrDenied(t *testing.T) {
	const sas, jwt = "servicebus.windows.net:sastoken", "jwt"
	const audience = "amqp://emulator/" + queue
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		soon, past := time.Now().Add(time.Minute), time.Now().Add(-time.Second)
		key := servicebus.RootKey()
		stranger, liar := key, key
		stranger.Name, liar.Value = "nobody", "guess"
		for name, test := range map[string]struct {
			kind, audience, token string
			expires               time.Time
			want                  int32
		}{
			"signature":                     {sas, audience, sign(key, audience, soon), soon, 202},
			"signature of the namespace":    {sas, audience, sign(key, "amqp://emulator/", soon), soon, 202},
			"signature with a port":         {sas, audience, sign(key, "sb://emulator:5672/", soon), soon, 202}, // Java's audience has none
			"expired signature":             {sas, audience, sign(key, audience, past), soon, 401},
			"signature of another host":     {sas, audience, sign(key, "sb://emulators:5672/", soon), soon, 401},
			"signature of another":          {sas, audience, sign(key, "amqp://emulator/lanes", soon), soon, 401},
			"signature with a wrong key":    {sas, audience, sign(liar, audience, soon), soon, 401},
			"signature with an unknown key": {sas, audience, sign(stranger, audience, soon), soon, 401},
			"no signature at all":           {sas, audience, "SharedAccessSignature ", soon, 401},
			"signature called a token":      {jwt, audience, sign(key, audience, soon), soon, 202}, // as Python does
			"such a one, with a wrong key":  {jwt, audience, sign(liar, audience, soon), soon, 401},
			"such a one, expired":           {jwt, audience, sign(key, audience, past), soon, 401},
			"token":                         {jwt, audience, "a.b.c", soon, 202},
			"expired token":                 {jwt, audience, "a.b.c", past, 401},
			"token of another kind":         {"kerberos", audience, "x", soon, 400},
			"nothing":                       {jwt, audience, "", soon, 400},
			"no such entity":                {jwt, "amqp://emulator/nothing", "a.b.c", soon, 404},
		} {
			require.Equal(t, test.want, newCBS(t, w).put(test.kind, test.audience, test.token, test.expires), name)
		}
	})
}

// A token that is sent again keeps the link open beyond the first token's expiry.
func TestADeniedTokenLeavesNoClaim(t *testing.T) {
	const audience = "amqp://emulator/" + queue
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		x := newCBS(t, w)
		require.EqualValues(t, 401, x.put("jwt", audience, "a.b.c", time.Now()))
		require.EqualValues(t, 401, x.putUntil("jwt", audience, "a.b.c", time.Now())) // as a time: Python's
		_, err := x.session.NewSender(t.Context(), queue, nil)
		require.Equal(t, "amqp:unauthorized-access", condition(t, err))

		require.EqualValues(t, 202, x.put("jwt", audience, "a.b.c", time.Now().Add(time.Minute)))
		s, err := x.session.NewSender(t.Context(), queue, nil)
		require.NoError(t, err)
		time.Sleep(50 * time.Second) // virtual
		require.EqualValues(t, 202, x.put("jwt", audience, "a.b.c", time.Now().Add(time.Minute)))
		time.Sleep(50 * time.Second)
		require.NoError(t, s.Send(t.Context(), amqp.NewMessage([]byte("x")), nil))
		time.Sleep(11 * time.Second)
		err = s.Send(t.Context(), amqp.NewMessage([]byte("x")), nil)
		require.Equal(t, "amqp:link:detach-forced", condition(t, err))
		require.ErrorContains(t, err, "RenewToken")
	})
}

// A key that may only listen cannot send, and one that may only send cannot listen.
func TestRightsOfKeys(t *testing.T) {
	const audience = "amqp://emulator/" + queue
	listens := servicebus.Key{Name: "reader", Value: "r", Rights: servicebus.Listen}
	sends := servicebus.Key{Name: "writer", Value: "w", Rights: servicebus.Send}
	inBubble(t, standard(), servicebus.Options{Keys: []servicebus.Key{listens, sends}}, func(t *testing.T, w *world) {
		for _, key := range []servicebus.Key{listens, sends} {
			x := newCBS(t, w)
			soon := time.Now().Add(time.Minute)
			require.EqualValues(t, 202, x.put("servicebus.windows.net:sastoken", audience, sign(key, audience, soon), soon))
			_, sendErr := x.session.NewSender(t.Context(), queue, nil)
			_, receiveErr := x.session.NewReceiver(t.Context(), queue, nil)
			if key.Rights == servicebus.Listen {
				require.Equal(t, "amqp:unauthorized-access", condition(t, sendErr))
				require.ErrorContains(t, sendErr, "'Send' claim(s) are required")
				require.NoError(t, receiveErr)
			} else {
				require.NoError(t, sendErr)
				require.Equal(t, "amqp:unauthorized-access", condition(t, receiveErr))
			}
		}
	})
}

// Clients of AMQP without knowledge of Service Bus sign in with a key as their password. They have
// the rights of the key without $cbs.
func TestAKeyAsAPassword(t *testing.T) {
	listens := servicebus.Key{Name: "reader", Value: "r", Rights: servicebus.Listen}
	inBubble(t, standard(), servicebus.Options{Keys: []servicebus.Key{servicebus.RootKey(), listens}}, func(t *testing.T, w *world) {
		signIn := func(name, password string) (*amqp.Session, error) {
			c, err := w.dial(t.Context())
			require.NoError(t, err)
			client, err := amqp.NewConn(t.Context(), c, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain(name, password)})
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() { _ = client.Close() })
			return client.NewSession(t.Context(), nil)
		}
		root, err := signIn(servicebus.RootKey().Name, servicebus.RootKey().Value)
		require.NoError(t, err)
		s, err := root.NewSender(t.Context(), queue, nil)
		require.NoError(t, err)
		require.NoError(t, s.Send(t.Context(), amqp.NewMessage([]byte("x")), nil))

		reader, err := signIn(listens.Name, listens.Value)
		require.NoError(t, err)
		r, err := reader.NewReceiver(t.Context(), queue, nil)
		require.NoError(t, err)
		m, err := r.Receive(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, r.AcceptMessage(t.Context(), m))
		_, err = reader.NewSender(t.Context(), queue, nil)
		require.Equal(t, "amqp:unauthorized-access", condition(t, err))

		_, err = signIn(listens.Name, servicebus.RootKey().Value)
		require.Error(t, err)
	})
}
