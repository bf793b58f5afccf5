package sessions

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// sharedConn is a connection to the broker (or a client of the SDK) that several workers use. When
// something on it breaks, later users get a new one. Sessions that still work stay on the old one,
// which is closed when the last of them has been released.
type sharedConn[T any] struct {
	open   func(ctx context.Context) (T, error)
	alive  func(T) bool
	shut   func(ctx context.Context, conn T)
	within time.Duration // bounds the closing of one

	opening chan struct{} // holds a token while one is being opened; a context ends the wait for it, unlike a mutex's
	closing sync.WaitGroup

	mu      sync.Mutex // never held while the network is waited for
	current *use[T]    // guarded by mu; nil: the next user opens one
}

// use is an open connection and the number of its users.
type use[T any] struct {
	conn  T
	of    *sharedConn[T]
	users int // guarded by of.mu
}

// acquire returns the current connection, or opens one while others wait. It must be followed by
// release.
func (s *sharedConn[T]) acquire(ctx context.Context) (*use[T], error) {
	if u := s.join(ctx); u != nil {
		return u, nil
	}
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a connection that is being opened: %w", context.Cause(ctx))
	}
	if u := s.join(ctx); u != nil {
		return u, nil
	}
	conn, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = &use[T]{conn: conn, of: s, users: 1}
	return s.current, nil
}

// join returns the current connection, or nil without one.
func (s *sharedConn[T]) join(ctx context.Context) *use[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.current
	if u == nil {
		return nil
	}
	if !s.alive(u.conn) {
		s.current = nil
		if u.users == 0 {
			s.closing.Go(func() { s.end(ctx, u.conn) })
		}
		return nil
	}
	u.users++
	return u
}

// release ends one use. A broken connection is not used again.
func (u *use[T]) release(ctx context.Context, broken bool) {
	s := u.of
	s.mu.Lock()
	defer s.mu.Unlock()
	u.users--
	if broken && s.current == u {
		s.current = nil
	}
	if u.users == 0 && s.current != u {
		s.closing.Go(func() { s.end(ctx, u.conn) }) // a dead peer does not answer, and no worker should wait for it
	}
}

func (s *sharedConn[T]) end(ctx context.Context, conn T) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.within)
	defer cancel()
	s.shut(ctx, conn)
}

// close closes the connection, which must no longer be in use, and waits for those that were
// replaced.
func (s *sharedConn[T]) close(ctx context.Context) {
	s.mu.Lock()
	last := s.current
	s.current = nil
	s.mu.Unlock()
	if last != nil {
		s.end(ctx, last.conn)
	}
	s.closing.Wait()
}
