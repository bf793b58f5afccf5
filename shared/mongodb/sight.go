package mongodb

import (
	"cmp"
	"errors"
	"sync"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Sight records what a client's monitor has seen of the deployment. The driver itself reports
// nothing until it gives up, after half a minute. The zero value has seen nothing.
type Sight struct {
	mu       sync.Mutex
	answered bool
	failure  error // the last one
}

// ErrUnseen is returned while a deployment has sent neither an answer nor a refusal.
var ErrUnseen = errors.New("no host has answered yet")

// Watch makes a client's monitor report to s.
func (s *Sight) Watch(o *options.ClientOptions) {
	o.SetServerMonitor(&event.ServerMonitor{
		ServerHeartbeatSucceeded: func(*event.ServerHeartbeatSucceededEvent) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.answered = true
		},
		ServerHeartbeatFailed: func(e *event.ServerHeartbeatFailedEvent) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.failure = e.Failure
		},
	})
}

// Silence returns nil once any host has answered. Before that it returns the last failure, or
// [ErrUnseen].
func (s *Sight) Silence() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answered {
		return nil
	}
	return cmp.Or(s.failure, ErrUnseen)
}
