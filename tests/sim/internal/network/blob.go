package network

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"syscall"
)

// Doer answers requests: a transport of the Blob SDK.
type Doer interface {
	Do(r *http.Request) (*http.Response, error)
}

// BlobLink is one party's connection to Blob storage. It is safe for concurrent use.
type BlobLink struct {
	to Doer

	mu       sync.Mutex
	held     Direction                // guarded by mu
	cut      bool                     // guarded by mu
	dead     bool                     // guarded by mu
	lose     int                      // guarded by mu: answers to lose
	delay    int                      // guarded by mu: requests to hold one by one
	waiting  []*held                  // guarded by mu: requests in flight, in order
	next     func(*http.Request) bool // guarded by mu: the request to hold alone; nil for none
	alone    []*held                  // guarded by mu: those that were
	released chan struct{}
}

// held is a request that waits before it reaches the server.
type held struct {
	request *http.Request
	answer  chan answer // one
}

type answer struct {
	response *http.Response
	err      error
}

// NewBlobLink returns a healthy link.
func NewBlobLink(to Doer) *BlobLink { return &BlobLink{to: to, released: make(chan struct{})} }

// Do carries a request over the link and its answer back, unless its context ends first. A held
// request that its sender has abandoned still arrives when the link heals.
func (l *BlobLink) Do(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	switch {
	case l.cut || l.dead:
		l.mu.Unlock()
		return nil, syscall.ECONNRESET
	case l.held&Requests != 0 || l.delay > 0 || (l.next != nil && l.next(r)):
		to := &l.waiting
		if l.held&Requests == 0 && l.delay == 0 {
			to, l.next = &l.alone, nil
		}
		l.delay = max(0, l.delay-1)
		copied, err := detached(r)
		if err != nil {
			l.mu.Unlock()
			return nil, err
		}
		h := &held{request: copied, answer: make(chan answer, 1)}
		*to = append(*to, h)
		l.mu.Unlock()
		select {
		case a := <-h.answer:
			return a.response, a.err
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	l.mu.Unlock()

	response, err := l.to.Do(r)

	l.mu.Lock()
	lost := l.lose > 0 || l.dead
	if lost && !l.dead {
		l.lose--
	}
	waits, released := l.held&Replies != 0, l.released
	l.mu.Unlock()
	switch {
	case lost:
		return nil, io.ErrUnexpectedEOF
	case waits:
		select {
		case <-released:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	return response, err
}

// detached copies a request so that it can be carried out after its sender has gone.
func detached(r *http.Request) (*http.Request, error) {
	copied := r.Clone(context.WithoutCancel(r.Context()))
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		copied.Body = io.NopCloser(bytes.NewReader(body))
	}
	return copied, nil
}

// Hold makes what is sent in a direction wait from now on.
func (l *BlobLink) Hold(d Direction) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held |= d
}

// Cut makes every request fail from now on. Held ones are lost.
func (l *BlobLink) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	l.drop()
}

// LoseAnswers lets the next n requests take effect without an answer.
func (l *BlobLink) LoseAnswers(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose = n
}

// Delay holds the next n requests, and lets later ones overtake them, until the link heals.
func (l *BlobLink) Delay(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = n
}

// DelayNext holds the next request of a kind, and lets later ones overtake it, until Deliver.
func (l *BlobLink) DelayNext(kind func(*http.Request) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = kind
}

// Deliver lets what DelayNext has held arrive.
func (l *BlobLink) Deliver() {
	l.mu.Lock()
	alone := l.alone
	l.alone, l.next = nil, nil
	l.mu.Unlock()
	l.carryOut(alone)
}

func (l *BlobLink) carryOut(waiting []*held) {
	for _, h := range waiting {
		response, err := l.to.Do(h.request)
		h.answer <- answer{response, err}
	}
}

// Heal makes the link whole: held requests arrive, in order, and held answers too.
func (l *BlobLink) Heal() {
	l.mu.Lock()
	waiting := append(l.alone, l.waiting...)
	l.alone, l.next = nil, nil
	l.waiting, l.held, l.cut, l.lose, l.delay = nil, 0, false, 0, 0
	close(l.released)
	l.released = make(chan struct{})
	l.mu.Unlock()
	l.carryOut(waiting)
}

// Kill ends the party as a killed process ends; see [Link.Kill].
func (l *BlobLink) Kill(silent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	if silent {
		l.drop()
	}
}

func (l *BlobLink) drop() {
	for _, h := range append(l.alone, l.waiting...) {
		h.answer <- answer{err: syscall.ECONNRESET}
	}
	l.waiting, l.alone, l.next = nil, nil, nil
}
