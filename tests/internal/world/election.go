package world

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// AnswersOnly is a connection to MongoDB that delivers only the answers to recent requests. What
// the server sends later on its own is lost, as can happen in the driver at a moment that a test
// cannot control.
type AnswersOnly struct{ To options.ContextDialer }

func (d AnswersOnly) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := d.To.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &answersOnlyConn{Conn: c}, nil
}

type answersOnlyConn struct {
	net.Conn
	asked atomic.Pointer[time.Time]
}

func (c *answersOnlyConn) Write(b []byte) (int, error) {
	c.asked.Store(new(time.Now()))
	return c.Conn.Write(b)
}

func (c *answersOnlyConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || time.Since(*c.asked.Load()) < time.Second {
			return n, err
		}
	}
}

// RequirePatience requires that a command succeeds while MongoDB elects a primary and the client is
// not informed of it.
func (w *World) RequirePatience(command func() Operated) {
	w.Helper()
	const election = 2 * time.Second
	w.OperatorMongo = AnswersOnly{w.OperatorMongo}
	w.Mongo.StepDown(election)
	start := time.Now()
	done := command()
	require.Equal(w, 0, done.Code, done.Err)
	require.GreaterOrEqual(w, time.Since(start), election)
	require.LessOrEqual(w, time.Since(start), election+time.Second)
}
