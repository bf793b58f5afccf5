package world

import "sync"

// Fuse pulls plugs when it has let through what it is good for.
type Fuse struct {
	mu    sync.Mutex // guards everything below
	left  int        // writes
	blown bool
	plugs []*Plug
}

// LayFuse makes a fuse that blows after n writes through either of the plugs.
func LayFuse(n int, plugs ...*Plug) *Fuse {
	f := &Fuse{left: n, plugs: plugs}
	for _, p := range plugs {
		p.mu.Lock()
		p.fuse = f
		p.mu.Unlock()
	}
	return f
}

// HasBlown says whether the plugs have been pulled.
func (f *Fuse) HasBlown() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.blown
}

// burn takes one write.
func (f *Fuse) burn() {
	f.mu.Lock()
	f.left--
	blows := f.left < 0 && !f.blown
	f.blown = f.blown || blows
	f.mu.Unlock()
	if blows {
		for _, p := range f.plugs {
			p.Pull()
		}
	}
}
