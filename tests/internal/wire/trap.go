package wire

import "sync"

// Server is which server a message goes to or comes from.
type Server string

// The servers.
const (
	Mongo      Server = "MongoDB"
	ServiceBus Server = "Service Bus"
	Blob       Server = "Blob storage"
)

// Servers are all of them.
func Servers() [3]Server { return [3]Server{Mongo, ServiceBus, Blob} }

// Unit is one message on its way.
type Unit struct {
	Server Server
	// Name is the MongoDB command, the AMQP performative, or what is asked of Blob storage: write, read, acquire, renew,
	// release, break. A reply has the name of what it answers; of AMQP, its own.
	Name  string
	Reply bool
	Bytes int
	// Message is all of it, to be read only; nil of Blob storage.
	Message []byte
	// Changes are those in a reply to getMore.
	Changes int
}

// Trap holds the first message that it is made for. It is set on one or more ways and springs once.
type Trap struct {
	match   func(Unit) bool
	sprung  chan struct{} // closed when a message is held
	verdict chan struct{} // closed when it is let go

	mu      sync.Mutex // guards everything below
	by      *Way       // on which it sprang
	over    bool       // holds nothing any more
	deliver bool
}

// NewTrap is a trap for the first message that match is true of.
func NewTrap(match func(Unit) bool) *Trap {
	return &Trap{match: match, sprung: make(chan struct{}), verdict: make(chan struct{})}
}

// Sprung is closed when a message is held.
func (t *Trap) Sprung() <-chan struct{} { return t.sprung }

// By is the way on which a message is held; nil before.
func (t *Trap) By() *Way {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.by
}

// Release lets the held message go on, or loses it with its connection. Before the trap has sprung it disarms it. Only the
// first call counts.
func (t *Trap) Release(deliver bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.over, t.deliver = true, deliver
		close(t.verdict)
	}
}

// hold waits with a message that matches until it may go on. It reports false when it is lost.
func (t *Trap) hold(w *Way, u Unit) (deliver bool) {
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
