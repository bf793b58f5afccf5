package servicebus_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// web serves HTTP, and with it WebSockets, without TLS and gives the address.
func web(t *testing.T) (*servicebus.Server, string) {
	t.Helper()
	s, err := servicebus.New(standard(), servicebus.Options{})
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.RunManagement(ctx, l); err != nil {
			t.Errorf("run management: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return s, l.Addr().String()
}

// The test follows the SDK's example, with an independent WebSocket library.
func TestAMQPOverWebSockets(t *testing.T) {
	s, addr := web(t)
	var asked []string
	c, err := azservicebus.NewClientFromConnectionString(servicebus.ConnectionString(addr), &azservicebus.ClientOptions{
		NewWebSocketConn: func(ctx context.Context, args azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			asked = append(asked, args.Host)
			plain := strings.Replace(args.Host, "wss://", "ws://", 1)
			conn, _, err := websocket.Dial(ctx, plain, &websocket.DialOptions{Subprotocols: []string{"amqp"}})
			if err != nil {
				return nil, err
			}
			if conn.Subprotocol() != "amqp" {
				t.Errorf("subprotocol %q", conn.Subprotocol())
			}
			return websocket.NetConn(context.WithoutCancel(ctx), conn, websocket.MessageBinary), nil
		},
	})
	require.NoError(t, err)
	// The library reports the end of a connection that was closed in good order.
	defer func() { _ = c.Close(context.WithoutCancel(t.Context())) }()
	w := &world{t: t, server: s, client: c}
	big := message("a", "big")
	big.Body = make([]byte, 200<<10) // many AMQP frames, and WebSocket messages of every length form
	for i := range big.Body {
		big.Body[i] = byte(i * 7)
	}
	w.send(topic, message("a", "1"), message("a", "2"))
	w.send(topic, big)
	r := w.accept("a")
	got := w.receive(r, 3)
	require.Equal(t, []string{"1", "2", "big"}, ids(got))
	require.Equal(t, big.Body, got[2].Body)
	w.complete(r, got...)
	w.close(r)
	require.Zero(t, s.Stats(subPath).Active)
	require.NotEmpty(t, asked)
	require.True(t, strings.HasSuffix(asked[0], "/$servicebus/websocket"), asked[0])
}

func TestWebSocketFrames(t *testing.T) {
	_, addr := web(t)
	open := func(t *testing.T) (net.Conn, *bufio.Reader) {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, err = io.WriteString(c, "GET /$servicebus/websocket HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: AMQPWSB10\r\n\r\n")
		require.NoError(t, err)
		br := bufio.NewReader(c)
		answer, err := http.ReadResponse(br, nil)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusSwitchingProtocols, answer.StatusCode)
		require.Equal(t, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", answer.Header.Get("Sec-WebSocket-Accept")) // [RFC6455-1.3]
		require.Equal(t, "AMQPWSB10", answer.Header.Get("Sec-WebSocket-Protocol"))
		return c, br
	}
	mask := []byte{1, 2, 3, 4}
	masked := func(op byte, body string) []byte {
		b := append([]byte{op, 0x80 | byte(len(body))}, mask...)
		for i := range len(body) {
			b = append(b, body[i]^mask[i%4])
		}
		return b
	}
	read := func(t *testing.T, br *bufio.Reader) string {
		t.Helper()
		var head [2]byte
		_, err := io.ReadFull(br, head[:])
		require.NoError(t, err)
		body := make([]byte, head[1])
		_, err = io.ReadFull(br, body)
		require.NoError(t, err)
		return string(head[:1]) + string(body)
	}
	t.Run("a ping between two parts of a message is answered", func(t *testing.T) {
		c, br := open(t)
		// The AMQP header of SASL in two fragments [RFC6455-5.4].
		for _, b := range [][]byte{masked(0x02, "AMQ"), masked(0x89, "hi"), masked(0x80, "P\x03\x01\x00\x00")} {
			_, err := c.Write(b)
			require.NoError(t, err)
		}
		require.Equal(t, "\x8ahi", read(t, br))
		require.True(t, strings.HasPrefix(read(t, br), "\x82AMQP\x03\x01\x00\x00"))
	})
	t.Run("a close is answered", func(t *testing.T) {
		c, br := open(t)
		_, err := c.Write(masked(0x88, "\x03\xe8"))
		require.NoError(t, err)
		require.Equal(t, "\x88\x03\xe8", read(t, br))
		_, err = br.ReadByte()
		require.Error(t, err)
	})
	for name, bytes := range map[string][]byte{
		"a frame that is not masked":    {0x82, 1, 'A'},
		"a text message":                masked(0x81, "AMQP"),
		"a control frame that is large": {0x89, 0xfe, 1, 0, 1, 2, 3, 4},
		"a frame without end":           {0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4},
	} {
		t.Run(name+" ends the connection", func(t *testing.T) {
			c, br := open(t)
			_, err := c.Write(bytes)
			require.NoError(t, err)
			_, err = br.ReadByte()
			require.Error(t, err)
		})
	}
	t.Run("another request is refused", func(t *testing.T) {
		answer, err := http.Get("http://" + addr + "/$servicebus/websocket")
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusBadRequest, answer.StatusCode)
		http.DefaultClient.CloseIdleConnections()
	})
}
