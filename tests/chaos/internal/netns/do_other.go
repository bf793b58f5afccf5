//go:build !linux

package netns

// Do works only on Linux.
func (n *Namespace) Do(func() error) error { return ErrUnavailable }
