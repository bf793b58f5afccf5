//go:build !linux

package netns

// Do is for Linux alone.
func (n *Namespace) Do(func() error) error { return ErrUnavailable }
