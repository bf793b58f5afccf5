package wire

import "sync"

// Server is the server that a message goes to or comes from.
type Server string

// The servers.
const (
	Mongo      Server = "MongoDB"
	ServiceBus Server = "Service Bus"
	Blob       Server = "Blob storage"
)

// Servers returns all servers.
func Servers() [3]Server { return [3]Server{Mongo, ServiceBus, Blob} }

// Unit is one message in flight.
type Unit struct {
	Server Server
	// Name is the MongoDB command, the AMQP performative, or the operation of Blob storage: write,
	// read, acquire, renew, release, break. A reply has the name of its request; in AMQP, its own.
	Name  string
	Reply bool
	Bytes int
	// Message is the whole message, which must not be changed; nil for Blob storage.
	Message []byte
	// Changes is the number of changes in a reply to getMore.
	Changes int
}

// Trap holds the first message that matches. It is set on one or more proxies and springs once.
type Trap struct {
	match   func(Unit) bool
	sprung  chan struct{} // closed when a message is held
	verdict chan struct{} // closed when it is released

	mu      sync.Mutex // guards everything below
	by      *Proxy     // on which it sprang
	over    bool       // it holds no further message
	deliver bool
}

// NewTrap returns a trap for the first message for which match returns true.
func NewTrap(match func(Unit) bool) *Trap {
	return &Trap{match: match, sprung: make(chan struct{}), verdict: make(chan struct{})}
}

// Sprung returns a channel that is closed when a message is held.
func (t *Trap) Sprung() <-chan struct{} { return t.sprung }

// By returns the proxy on which a message is held; nil before.
func (t *Trap) By() *Proxy {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.by
}

// Release lets the held message continue, or drops it with its connection. Before the trap has
// sprung, Release disarms it. Only the first call counts.
func (t *Trap) Release(deliver bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.over, t.deliver = true, deliver
		close(t.verdict)
	}
}

// hold waits with a message that matches until it is released. It returns false if the message is
// dropped.
func (t *Trap) hold(w *Proxy, u Unit) (deliver bool) {
	t.mu.Lock()
	if t.over || t.by != nil || !t.match(u) {
		t.mu.Unlock()
		return true
	}
	t.by = w
	close(t.sprung)
	t.mu.Unlock()
	<-t.verdict
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.deliver
}
