package servicebus

import (
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/broker"
)

// clock advances the broker when something is due, as long as there are connections. Without one it
// need not run: the broker catches up on the next call.
type clock struct {
	broker *broker.Broker

	mu    sync.Mutex
	users int
	stop  chan struct{}
	wg    sync.WaitGroup
}

// use keeps the clock running until the returned function is called.
func (c *clock) use() (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users++; c.users == 1 {
		stop, earlier := make(chan struct{}), make(chan struct{}, 1)
		c.stop = stop
		c.broker.OnEarlierDeadline(func() {
			select {
			case earlier <- struct{}{}:
			default:
			}
		})
		c.wg.Go(func() { c.run(stop, earlier) })
	}
	return c.release
}

func (c *clock) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users--; c.users == 0 {
		close(c.stop)
		c.wg.Wait() // run takes no lock of ours
	}
}

func (c *clock) run(stop, earlier <-chan struct{}) {
	const idle = time.Hour
	t := time.NewTimer(idle)
	defer t.Stop()
	for {
		wait := idle
		if at, ok := c.broker.NextDeadline(); ok {
			wait = max(time.Until(at), 0)
		}
		t.Reset(wait)
		select {
		case <-stop:
			return
		case <-earlier:
		case <-t.C:
			c.broker.Advance()
		}
	}
}
