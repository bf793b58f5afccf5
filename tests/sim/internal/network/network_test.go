//go:build !race || go1.27

package network_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/sim/internal/network"
)

// connected returns a link with one connection over it, both ends.
func connected(t *testing.T) (l *network.Link, client, server net.Conn) {
	t.Helper()
	h := network.Listen("server")
	l = network.NewLink(h)
	client, err := l.DialContext(t.Context(), "", "")
	require.NoError(t, err)
	server, err = h.Accept()
	require.NoError(t, err)
	return l, client, server
}

func write(t *testing.T, c net.Conn, text string) {
	t.Helper()
	_, err := c.Write([]byte(text))
	require.NoError(t, err)
}

// arrives reads what there is within a second of virtual time.
func arrives(t *testing.T, c net.Conn) string {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Second)))
	b := make([]byte, 100)
	n, _ := c.Read(b)
	return string(b[:n])
}

func TestWhatIsHeldArrivesInOrder(t *testing.T) {
	t.Parallel()
	virtualtime.Test(t, func(t *testing.T) {
		l, client, server := connected(t)
		write(t, client, "1")
		l.Hold(network.Requests)
		write(t, client, "2")
		write(t, client, "3")
		require.Equal(t, "1", arrives(t, server))
		require.Empty(t, arrives(t, server))
		write(t, server, "answer")
		require.Equal(t, "answer", arrives(t, client), "the other direction is free")
		l.Heal()
		require.True(t, l.Released(time.Now()))
		write(t, client, "4")
		require.Equal(t, "234", arrives(t, server))
	})
}

func TestWhatAKilledPartyHadSentArrivesLate(t *testing.T) {
	t.Parallel()
	virtualtime.Test(t, func(t *testing.T) {
		l, client, server := connected(t)
		l.Hold(network.Requests)
		write(t, client, "last words")
		l.Kill(false)
		_, err := client.Write([]byte("more"))
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = client.Read(make([]byte, 1))
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = l.DialContext(t.Context(), "", "")
		require.Error(t, err)
		require.Empty(t, arrives(t, server))
		l.Heal()
		require.Equal(t, "last words", arrives(t, server))
		_, err = server.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	})
}

func TestASilentKillSendsTheServerNothing(t *testing.T) {
	t.Parallel()
	virtualtime.Test(t, func(t *testing.T) {
		l, _, server := connected(t)
		l.Kill(true)
		require.NoError(t, server.SetReadDeadline(time.Now().Add(time.Hour)))
		begun := time.Now()
		_, err := server.Read(make([]byte, 1))
		require.Error(t, err)
		require.Equal(t, time.Hour, time.Since(begun))
	})
}

func TestACutBreaksBothEndsUntilItHeals(t *testing.T) {
	t.Parallel()
	virtualtime.Test(t, func(t *testing.T) {
		l, client, server := connected(t)
		l.Hold(network.Requests)
		write(t, client, "lost")
		l.Cut()
		for _, c := range []net.Conn{client, server} {
			_, err := c.Read(make([]byte, 1))
			require.Error(t, err)
		}
		_, err := l.DialContext(t.Context(), "", "")
		require.Error(t, err)
		l.Heal()
		_, err = l.DialContext(t.Context(), "", "")
		require.NoError(t, err)
	})
}

// taken records the bodies in the order in which storage took them.
type taken []string

func (k *taken) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	*k = append(*k, string(body))
	return &http.Response{StatusCode: http.StatusCreated}, err
}

func put(ctx context.Context, t *testing.T, l *network.BlobLink, body string) error {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://blob/", bytes.NewReader([]byte(body)))
	require.NoError(t, err)
	_, err = l.Do(r) //nolint:bodyclose // it has none
	return err
}

func TestADelayedRequestIsOvertakenAndCarriedOut(t *testing.T) {
	t.Parallel()
	virtualtime.Test(t, func(t *testing.T) {
		var k taken
		l := network.NewBlobLink(&k)
		l.Delay(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, put(ctx, t, l, "old"), context.DeadlineExceeded)
		require.NoError(t, put(t.Context(), t, l, "new"))
		l.Heal()
		require.Equal(t, taken{"new", "old"}, k)
	})
}

func TestALostAnswerIsOfARequestThatTookEffect(t *testing.T) {
	t.Parallel()
	virtualtime.Test(t, func(t *testing.T) {
		var k taken
		l := network.NewBlobLink(&k)
		l.LoseAnswers(1)
		require.Error(t, put(t.Context(), t, l, "1"))
		require.NoError(t, put(t.Context(), t, l, "2"))
		require.Equal(t, taken{"1", "2"}, k)
		l.Cut()
		require.Error(t, put(t.Context(), t, l, "3"))
		require.Equal(t, taken{"1", "2"}, k)
	})
}
