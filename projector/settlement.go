package projector

import "sync"

// settlement is a batch that is being completed while the next one is received and applied. That does not affect order: the effects
// of the batch are committed, and a message that is completed late, or not at all, is at worst delivered again and recognised as a
// duplicate. The zero value has none under way; one goroutine uses it.
type settlement struct {
	under sync.WaitGroup
	err   error // read after under is done
}

// begin starts send; the caller has waited for the previous one.
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
