package e2e

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// answersOnly is a way to MongoDB on which only what is asked for just now arrives. What the server tells later of its own
// accord is lost, as it can be in the driver, which a test cannot time.
type answersOnly struct{ to options.ContextDialer }

func (d answersOnly) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := d.to.DialContext(ctx, network, addr)
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

// requirePatience: a command comes through while MongoDB elects a primary, and the news of it is lost.
func requirePatience(t *testing.T, server *mongo.Server, command func() operated) {
	t.Helper()
	const election = 2 * time.Second
	server.StepDown(election)
	start := time.Now()
	done := command()
	require.Equal(t, 0, done.code, done.err)
	require.GreaterOrEqual(t, time.Since(start), election)
	require.LessOrEqual(t, time.Since(start), election+time.Second)
}

func TestAProducerCommandAsksMongoDBAndDoesNotWaitToBeTold(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		a := w.start("a", nil)
		w.leads("a")
		a.end()
		w.desk = answersOnly{w.desk}
		requirePatience(w.T, w.mongo, func() operated { return w.operate("status") })
	})
}

func TestAProjectorCommandAsksMongoDBAndDoesNotWaitToBeTold(t *testing.T) {
	inBubble(t, func(w *projectorWorld) {
		requirePatience(w.T, w.mongo, func() operated {
			return w.operate(func(_ *projector.Config, o *projector.Options) {
				o.Mongo = func(m *options.ClientOptions) { m.SetDialer(answersOnly{byName{w.mongoNet}}) }
			}, "status")
		})
	})
}
