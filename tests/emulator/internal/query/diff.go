package query

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// Change is the effect of an update on a document, as a change event describes it.
type Change struct {
	Replace   bool     // the event is a replace and describes nothing
	Updated   bson.D   // dotted path to new value
	Removed   []string // dotted paths
	Truncated bson.A   // {field, newSize}
}

// Empty reports that nothing changed.
func (c *Change) Empty() bool {
	return !c.Replace && len(c.Updated) == 0 && len(c.Removed) == 0 && len(c.Truncated) == 0
}

// identical reports equality of the bytes: 1 and 1.0 differ.
func identical(a, b any) bool {
	x, tx := value.AppendValue(nil, a)
	y, ty := value.AppendValue(nil, b)
	return tx == ty && bytes.Equal(x, y)
}

// diff describes the way from old to new as an oplog entry of a pipeline update does: by field,
// into nested documents and arrays; a description no smaller than the document becomes a
// replacement.
func diff(old, now bson.D) Change {
	var c Change
	delta := between(old, now)
	if delta.empty() {
		return c
	}
	const around = 15 // what an entry has beside the delta
	if delta.size()+around >= len(value.Encode(now)) {
		return Change{Replace: true}
	}
	c.add("", delta)
	return c
}

// delta is how a document has changed, as a server computes it since 5.0. A field whose place among
// its neighbours has changed is inserted, as a new one is, and so is all that stands behind it: who
// applies the delta takes it from its old place and puts it at the end. [MongoDB
// src/mongo/db/update/document_diff_calculator.cpp, computeDocDiff]
type delta struct {
	removed         []string
	updated, placed bson.D // changed in their places, and put at the end
	within          []inner
	isArray, cut    bool
	length          int // that an array is cut to
}

// inner is a change within a field.
type inner struct {
	key string
	*delta
}

func (x *delta) empty() bool {
	return len(x.removed) == 0 && len(x.updated) == 0 && len(x.placed) == 0 && len(x.within) == 0 && !x.cut
}

// size returns the size of the delta in an oplog entry, in bytes.
func (x *delta) size() int {
	const document, section, truth, number = 5, 3, 1, 4
	n := document
	fields := func(d bson.D) {
		if len(d) > 0 {
			n += section + len(value.Encode(d))
		}
	}
	switch {
	case x.isArray: // {a: true, l: 2, u0: …, s1: …}
		n += section + truth
		if x.cut {
			n += section + number
		}
		for _, e := range x.updated {
			n += len(value.Encode(bson.D{e})) - document + len("u")
		}
	default: // {d: {…}, u: {…}, i: {…}, sname: …}
		if len(x.removed) > 0 {
			n += section + document
		}
		for _, name := range x.removed {
			n += 1 + len(name) + 1 + truth
		}
		fields(x.updated)
		fields(x.placed)
	}
	for _, in := range x.within {
		n += 1 + len("s") + len(in.key) + 1 + in.size()
	}
	return n
}

// between returns the delta of two documents.
func between(old, now bson.D) *delta {
	x := &delta{}
	gone, i := map[string]bool{}, 0
	for _, was := range old {
		if i < len(now) && now[i].Key == was.Key {
			x.field(was.Key, was.Value, now[i].Value)
			i++
			continue
		}
		gone[was.Key] = true
	}
	for _, e := range now[i:] {
		delete(gone, e.Key)
		x.placed = append(x.placed, e)
	}
	x.removed = slices.Sorted(maps.Keys(gone))
	return x
}

// field adds a value that may have changed: only the changes within it, if they are shorter than
// the whole value.
func (x *delta) field(key string, old, now any) {
	if identical(old, now) {
		return
	}
	var in *delta
	switch n := now.(type) {
	case bson.D:
		if o, ok := old.(bson.D); ok {
			in = between(o, n)
		}
	case bson.A:
		if o, ok := old.(bson.A); ok {
			in = betweenArrays(o, n)
		}
	}
	if in != nil {
		if whole, _ := value.AppendValue(nil, now); in.size() < len(whole) {
			x.within = append(x.within, inner{key, in})
			return
		}
	}
	x.updated = append(x.updated, bson.E{Key: key, Value: now})
}

func betweenArrays(old, now bson.A) *delta {
	x := &delta{isArray: true, cut: len(now) < len(old), length: len(now)}
	for i, v := range now {
		if i < len(old) {
			x.field(strconv.Itoa(i), old[i], v)
			continue
		}
		x.updated = append(x.updated, bson.E{Key: strconv.Itoa(i), Value: v})
	}
	return x
}

// add converts a delta to paths, in the order of a server's oplog: at each level first the changed
// fields, then the added ones, then the changes further within; in an array by position.
func (c *Change) add(prefix string, x *delta) {
	for _, name := range x.removed {
		c.Removed = append(c.Removed, join(prefix, name))
	}
	if x.cut {
		c.Truncated = append(c.Truncated, bson.D{{Key: "field", Value: prefix}, {Key: "newSize", Value: int32(x.length)}})
	}
	if !x.isArray {
		for _, e := range slices.Concat(x.updated, x.placed) {
			c.Updated = append(c.Updated, bson.E{Key: join(prefix, e.Key), Value: e.Value})
		}
		for _, in := range x.within {
			c.add(join(prefix, in.key), in.delta)
		}
		return
	}
	place := func(key string) int { n, _ := strconv.Atoi(key); return n }
	updated := x.updated
	for _, in := range x.within {
		for len(updated) > 0 && place(updated[0].Key) < place(in.key) {
			c.Updated = append(c.Updated, bson.E{Key: join(prefix, updated[0].Key), Value: updated[0].Value})
			updated = updated[1:]
		}
		c.add(join(prefix, in.key), in.delta)
	}
	for _, e := range updated {
		c.Updated = append(c.Updated, bson.E{Key: join(prefix, e.Key), Value: e.Value})
	}
}

// inOplogOrder puts updated fields in the order in which a server's oplog has them since 5.0: at
// each level those that were there before, then new ones, then what changed further within; in an
// array by the place.
func inOplogOrder(old any, updated bson.D) bson.D {
	type inside struct {
		key    string
		fields bson.D
	}
	var first, then, out bson.D
	var deeper []inside
	for _, u := range updated {
		key, rest, within := strings.Cut(u.Key, ".")
		if !within {
			if d, ok := old.(bson.D); ok {
				if _, had := value.Get(d, key); !had {
					then = append(then, u)
					continue
				}
			}
			first = append(first, u)
			continue
		}
		if n := len(deeper); n == 0 || deeper[n-1].key != key {
			deeper = append(deeper, inside{key: key})
		}
		last := &deeper[len(deeper)-1]
		last.fields = append(last.fields, bson.E{Key: rest, Value: u.Value})
	}
	out = append(first, then...)
	for _, in := range deeper {
		was, _ := getPath(old, []string{in.key})
		for _, f := range inOplogOrder(was, in.fields) {
			out = append(out, bson.E{Key: in.key + "." + f.Key, Value: f.Value})
		}
	}
	if _, isArray := old.(bson.A); isArray { // in the order of its places, whatever has changed of them
		place := func(e bson.E) int { key, _, _ := strings.Cut(e.Key, "."); n, _ := strconv.Atoi(key); return n }
		slices.SortStableFunc(out, func(a, b bson.E) int { return place(a) - place(b) })
	}
	return out
}

func join(prefix, key string) string {
	if prefix == "" {
		return key
	}
	return prefix + "." + key
}
