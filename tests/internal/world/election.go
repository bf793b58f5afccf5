package world

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// AnswersOnly is a way to MongoDB on which only what is asked for just now arrives. What the server tells later of its own
// accord is lost, as it can be in the driver, which a test cannot time.
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

// RequirePatience holds a command to it that it comes through while MongoDB elects a primary, and the news of it is lost.
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
