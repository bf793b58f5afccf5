package engine

import (
	"slices"
	"sort"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/keystring"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// chunkSize is how many records a chunk holds before it is cut in two.
const chunkSize = 512

// order holds a collection's records in the order of their _id: the _id index.
// It is a list of sorted chunks, none empty; keys do not repeat. Guarded by Engine.mu.
type order struct{ chunks [][]*record }

// find returns the place of the first record whose key is at least key.
func (o *order) find(key string) (chunk, at int) {
	chunk = sort.Search(len(o.chunks), func(i int) bool { c := o.chunks[i]; return c[len(c)-1].key >= key })
	if chunk < len(o.chunks) {
		c := o.chunks[chunk]
		at = sort.Search(len(c), func(i int) bool { return c[i].key >= key })
	}
	return chunk, at
}

func (o *order) add(r *record) {
	n := len(o.chunks)
	if n == 0 || (len(o.chunks[n-1]) >= chunkSize && o.chunks[n-1][chunkSize-1].key < r.key) {
		o.chunks = append(o.chunks, append(make([]*record, 0, chunkSize), r))
		return
	}
	i, at := n-1, 0
	if last := o.chunks[i]; last[len(last)-1].key < r.key { // ids mostly grow
		at = len(last)
	} else {
		i, at = o.find(r.key)
	}
	c := slices.Insert(o.chunks[i], at, r)
	if len(c) > chunkSize {
		half := append(make([]*record, 0, chunkSize), c[len(c)/2:]...)
		clear(c[len(c)/2:])
		c = c[:len(c)/2]
		o.chunks = slices.Insert(o.chunks, i+1, half)
	}
	o.chunks[i] = c
}

func (o *order) remove(r *record) {
	i, at := o.find(r.key)
	c := slices.Delete(o.chunks[i], at, at+1)
	if len(c) == 0 {
		o.chunks = slices.Delete(o.chunks, i, i+1)
		return
	}
	o.chunks[i] = c
}

// scan visits the records of a range in order, or from its end to its beginning.
// The order must not change meanwhile.
func (o *order) scan(b bounds, descending bool, yield func(*record) bool) {
	first, at := o.find(b.low)
	if !descending {
		for ; first < len(o.chunks); first++ {
			for _, r := range o.chunks[first][at:] {
				if (b.high != "" && r.key > b.high) || !yield(r) {
					return
				}
			}
			at = 0
		}
		return
	}
	last := len(o.chunks) - 1
	if b.high != "" {
		last, _ = o.find(b.high)
		last = min(last, len(o.chunks)-1)
	}
	for ; last >= 0; last-- {
		for _, r := range slices.Backward(o.chunks[last]) {
			if b.high != "" && r.key > b.high {
				continue
			}
			if r.key < b.low || !yield(r) {
				return
			}
		}
	}
}

// bounds are the least and the greatest _id key that can match; "" is open. They
// are closed: a reader still matches what it gets.
type bounds struct{ low, high string }

func (b *bounds) narrow(op string, v any) bool {
	switch v.(type) {
	case int32, int64, float64, string, bson.ObjectID, bson.DateTime, bson.Timestamp, bson.Binary, bool:
	default:
		return false // comparisons that hold outside the value's own place in the order
	}
	if f, ok := value.AsFloat(v); ok && f != f {
		return false
	}
	key := keystring.Of(v)
	switch op {
	case "$gt", "$gte":
		b.low = max(b.low, key)
	case "$lt", "$lte":
		if b.high == "" || key < b.high {
			b.high = key
		}
	default:
		return false
	}
	return true
}

// rangeOf returns the range of _id to which a filter's comparisons restrict it; false if there is
// none.
func rangeOf(filter bson.D) (b bounds, ok bool) {
	b.read(filter, &ok)
	return b, ok
}

func (b *bounds) read(filter bson.D, found *bool) {
	for _, e := range filter {
		switch e.Key {
		case "$and":
			list, _ := e.Value.(bson.A)
			for _, item := range list {
				if d, ok := item.(bson.D); ok {
					b.read(d, found)
				}
			}
		case "_id":
			ops, _ := e.Value.(bson.D)
			for _, op := range ops {
				if b.narrow(op.Key, op.Value) {
					*found = true
				}
			}
		}
	}
}

// byOrder reports whether a sort is the order of the _id index, and its direction.
func byOrder(s *query.Sort) (descending, ok bool) {
	if s == nil {
		return false, false
	}
	return s.ByID()
}
