package projection

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Registry holds the projections that a projector can run, by name. It is filled before the
// projector starts, and only read afterwards.
type Registry struct {
	byName  map[string]Projection
	initial string // the name of the default; empty means the only projection
}

// NewRegistry returns a registry of the given projections. Their names must differ.
func NewRegistry(projections ...Projection) (*Registry, error) {
	r := &Registry{byName: make(map[string]Projection)}
	for _, p := range projections {
		if err := r.Register(p); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// builtin are the projections that come with the projector. The first is the default.
var builtin = []Projection{
	Timeline{},
	Mirror{},
	Orders{},
}

// Builtin returns a new registry with the projections that come with the projector: [Timeline],
// [Mirror] and [Orders].
func Builtin() *Registry {
	r := &Registry{byName: make(map[string]Projection), initial: builtin[0].Name()}
	for _, p := range builtin {
		r.byName[p.Name()] = p
	}
	return r
}

// Register adds a projection. Its name must be new, and must be allowed in the name of a
// collection.
func (r *Registry) Register(p Projection) error {
	name := p.Name()
	if name == "" || strings.ContainsAny(name, "$\x00 ") || strings.HasPrefix(name, "system.") {
		return fmt.Errorf("register projection %q: a collection cannot have such a name: use letters, digits, _ and -", name)
	}
	if versionName.MatchString(name) || strings.Contains(name, ":") {
		return fmt.Errorf("register projection %q: a name that ends like _v2, or has a colon, is that of a projection's version: use another", name)
	}
	if _, taken := r.byName[name]; taken {
		return fmt.Errorf("register projection %q: the name is taken", name)
	}
	if r.byName == nil {
		r.byName = make(map[string]Projection)
	}
	r.byName[name] = p
	return nil
}

// Lookup finds a projection by name.
func (r *Registry) Lookup(name string) (Projection, bool) {
	p, ok := r.byName[name]
	return p, ok
}

// Default returns the projection that runs if PROJECTION is not set: the only one, or [Timeline] of
// [Builtin]. ok is false if there are several.
func (r *Registry) Default() (p Projection, ok bool) {
	if r.initial == "" && len(r.byName) == 1 {
		for _, p := range r.byName {
			return p, true
		}
	}
	return r.Lookup(r.initial)
}

// Names returns the registered names, sorted.
func (r *Registry) Names() []string { return slices.Sorted(maps.Keys(r.byName)) }
