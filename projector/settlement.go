package projector

import "sync"

// settlement is a batch being completed while the next one is received and applied. That changes no order: the effects of
// the batch are committed, and what is completed late, or not at all, is at worst delivered again and recognised. The zero
// value is none under way; one goroutine uses it.
type settlement struct {
	under sync.WaitGroup
	err   error // read after under is done
}

// begin runs send; the one before must have been waited for.
func (s *settlement) begin(send func() error) {
	s.under.Go(func() { s.err = send() })
}

// wait waits until nothing is under way and says how the last one ended, once.
func (s *settlement) wait() error {
	s.under.Wait()
	err := s.err
	s.err = nil
	return err
}
