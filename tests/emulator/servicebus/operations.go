package servicebus

import (
	"maps"
	"strings"
	"sync"
)

// The operations that [Server.Operations] counts in addition to the requests to $management, which
// have their own names, such as peek-message.
const (
	OperationSend   = "send"   // a message or batch
	OperationAccept = "accept" // the opening of a receiver or session, also where there was none
	OperationSettle = "settle" // an outcome
)

// operations counts what is asked of the server.
type operations struct {
	mu    sync.Mutex
	count map[string]int // guarded by mu
}

func (o *operations) add(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.count == nil {
		o.count = make(map[string]int)
	}
	o.count[name]++
}

// asked counts a request to $management by the name of its operation.
func (o *operations) asked(operation string) { o.add(strings.TrimPrefix(operation, vendor)) }

// Operations returns how often each operation was asked for since the server was made, whatever
// became of it: much of it costs credits on the service's Standard tier.
func (s *Server) Operations() map[string]int {
	s.operations.mu.Lock()
	defer s.operations.mu.Unlock()
	return maps.Clone(s.operations.count)
}
