package query

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// Change is what an update did to a document, as a change event describes it.
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

// identical is equality of the bytes: 1 and 1.0 differ.
func identical(a, b any) bool {
	x, tx := value.AppendValue(nil, a)
	y, ty := value.AppendValue(nil, b)
	return tx == ty && bytes.Equal(x, y)
}

// diff describes the way from old to new as an oplog entry of a pipeline update
// does: by field, into nested documents and arrays; a description no smaller than
// the document becomes a replacement.
func diff(old, now bson.D) Change {
	var c Change
	c.docs("", old, now)
	if c.Empty() {
		return c
	}
	if c.bytes() > len(value.Encode(now)) {
		return Change{Replace: true}
	}
	c.Updated = inOplogOrder(old, c.Updated)
	return c
}

// inOplogOrder puts updated fields in the order in which a server's oplog has them since 5.0: at each level those that were there
// before, then new ones, then what changed further within; in an array by the place.
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

// bytes is about what the description takes in an oplog entry.
func (c *Change) bytes() int {
	n := len(value.Encode(c.Updated))
	for _, path := range c.Removed {
		n += len(path) + 10
	}
	for _, cut := range c.Truncated {
		n += len(value.Encode(cut.(bson.D)))
	}
	return n
}

func (c *Change) docs(prefix string, old, now bson.D) {
	for _, e := range old {
		if _, ok := value.Get(now, e.Key); !ok {
			c.Removed = append(c.Removed, join(prefix, e.Key))
		}
	}
	for _, e := range now {
		was, ok := value.Get(old, e.Key)
		c.values(join(prefix, e.Key), was, ok, e.Value)
	}
}

func (c *Change) values(path string, old any, existed bool, now any) {
	if existed {
		if identical(old, now) {
			return
		}
		switch n := now.(type) {
		case bson.D:
			if o, ok := old.(bson.D); ok && len(o) > 0 && len(n) > 0 {
				c.docs(path, o, n)
				return
			}
		case bson.A:
			if o, ok := old.(bson.A); ok && len(o) > 0 && len(n) > 0 {
				c.arrays(path, o, n)
				return
			}
		}
	}
	c.Updated = append(c.Updated, bson.E{Key: path, Value: now})
}

func (c *Change) arrays(path string, old, now bson.A) {
	if len(now) < len(old) {
		c.Truncated = append(c.Truncated, bson.D{{Key: "field", Value: path}, {Key: "newSize", Value: int32(len(now))}})
	}
	for i, v := range now {
		var was any
		if i < len(old) {
			was = old[i]
		}
		c.values(join(path, strconv.Itoa(i)), was, i < len(old), v)
	}
}
