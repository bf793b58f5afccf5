package projection

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Several versions of a projection can stand side by side in one database: version 1 under the
// projection's own names, and version v from 2 on with "_v<v>" behind its name and behind the name
// of every collection that it writes to. A version above 1 begins with a build (`projector build`).

// Version returns version v of a projection. The projection must declare its collections ([Stored]
// or [OneDocument]), since its documents could otherwise not be distinguished from those of version
// 1; version 1 is the projection itself.
func Version(p Projection, v int) (Projection, error) {
	if v == 1 {
		return p, nil
	}
	if v < 1 {
		return nil, fmt.Errorf("version %d of projection %s: versions begin with 1", v, p.Name())
	}
	if _, declared := Collections(p); !declared {
		return nil, fmt.Errorf("version %d of projection %s: the projection does not declare its collections: implement projection.Stored", v, p.Name())
	}
	of := version{of: p, suffix: "_v" + strconv.Itoa(v)}
	stored, isStored := p.(Stored)
	one, isOne := p.(OneDocument)
	switch {
	case isStored && isOne:
		return struct {
			version
			versionStored
			versionOne
		}{of, versionStored{stored, of.suffix}, versionOne{one, of.suffix}}, nil
	case isOne:
		return struct {
			version
			versionOne
		}{of, versionOne{one, of.suffix}}, nil
	}
	return struct {
		version
		versionStored
	}{of, versionStored{stored, of.suffix}}, nil
}

// ParseVersion splits "orders:2" into the projection's name and the version; without a colon it is
// 1.
func ParseVersion(text string) (name string, v int, err error) {
	name, number, found := strings.Cut(text, ":")
	if !found {
		return name, 1, nil
	}
	if v, err = strconv.Atoi(number); err != nil || v < 1 || strconv.Itoa(v) != number {
		return "", 0, errors.New("a version is a whole number from 1 on, such as " + name + ":2")
	}
	return name, v, nil
}

// baseOf returns the projection that p is a version of, and what is behind its names; p itself and
// nothing if it is version 1.
func baseOf(p Projection) (base Projection, suffix string) {
	if of, ok := p.(interface{ versionOf() (Projection, string) }); ok {
		return of.versionOf()
	}
	return p, ""
}

// VersionOf returns the version of a projection that [Version] returned; 1 for any other.
func VersionOf(p Projection) int {
	_, suffix := baseOf(p)
	v, _ := strconv.Atoi(strings.TrimPrefix(suffix, "_v"))
	return max(v, 1)
}

// Base returns the projection that p is a version of; p itself if it is version 1.
func Base(p Projection) Projection {
	base, _ := baseOf(p)
	return base
}

// CopiesByID returns the collection of a [Mirror] whose copies have the _id of their documents, or
// of a version of such a mirror. ok is false of any other projection.
func CopiesByID(p Projection) (collection string, ok bool) {
	base, suffix := baseOf(p)
	mirror, ok := base.(Mirror)
	if !ok || mirror.options.Key != "" {
		return "", false
	}
	return mirror.collection() + suffix, true
}

// Renamed returns the writes of the projection that p is a version of as those of p.
func Renamed(p Projection, writes []Write) []Write {
	_, suffix := baseOf(p)
	if suffix == "" {
		return writes
	}
	renamed := make([]Write, len(writes))
	for i, w := range writes {
		switch w := w.(type) {
		case UpdateOne:
			w.Collection += suffix
			renamed[i] = w
		case ReplaceOne:
			w.Collection += suffix
			renamed[i] = w
		case DeleteOne:
			w.Collection += suffix
			renamed[i] = w
		default:
			renamed[i] = w // the projector refuses it
		}
	}
	return renamed
}

// versionName is a name that only a version of a projection may have.
var versionName = regexp.MustCompile(`_v[0-9]+$`)

// version is a version above 1 of a projection: the same function, under other names.
type version struct {
	of     Projection
	suffix string
}

func (p version) versionOf() (Projection, string) { return p.of, p.suffix }

// Name implements [Projection].
func (p version) Name() string { return p.of.Name() + p.suffix }

// Project implements [Projection].
func (p version) Project(e Event) ([]Write, error) {
	writes, err := p.of.Project(e)
	if err != nil {
		return nil, err
	}
	return Renamed(p, writes), nil
}

// NeedsPostImages implements [PostImages].
func (p version) NeedsPostImages() bool {
	images, ok := p.of.(PostImages)
	return ok && images.NeedsPostImages()
}

// versionStored implements [Stored.Collections] for a version.
type versionStored struct {
	stored Stored
	suffix string
}

// Collections implements [Stored].
func (p versionStored) Collections() []Collection {
	var all []Collection
	for _, c := range p.stored.Collections() {
		c.Name += p.suffix
		all = append(all, c)
	}
	return all
}

// versionOne implements [OneDocument.Collection] for a version.
type versionOne struct {
	one    OneDocument
	suffix string
}

// Collection implements [OneDocument].
func (p versionOne) Collection() string { return p.one.Collection() + p.suffix }
