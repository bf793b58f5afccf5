package value

import (
	"slices"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/text/collate"
	"golang.org/x/text/language"
)

// Collation is an order of strings other than that of their bytes: English, by letters and not by
// their case. A nil one is the order of bytes.
type Collation struct {
	// CaseMatters: of two strings that differ in nothing else, the one with the small letter comes
	// first.
	CaseMatters bool
}

// Same reports whether two collations order alike.
func (c *Collation) Same(d *Collation) bool {
	if c == nil || d == nil {
		return c == d
	}
	return *c == *d
}

// Key gives, for every string in v, one whose bytes have the collation's order.
func (c *Collation) Key(v any) any {
	if c == nil {
		return v
	}
	switch t := v.(type) {
	case string:
		return c.key(t)
	case bson.Symbol:
		return c.key(string(t))
	case bson.A:
		out := make(bson.A, len(t))
		for i := range t {
			out[i] = c.Key(t[i])
		}
		return out
	case bson.D:
		out := make(bson.D, len(t))
		for i := range t {
			out[i] = bson.E{Key: t[i].Key, Value: c.Key(t[i].Value)}
		}
		return out
	}
	return v
}

// collators are the collators of strength 2 and 3, which one goroutine at a time may use.
var collators = struct {
	mu         sync.Mutex
	two, three *collate.Collator
}{two: collate.New(language.English, collate.IgnoreCase), three: collate.New(language.English)}

func (c *Collation) key(s string) string {
	collators.mu.Lock()
	defer collators.mu.Unlock()
	by := collators.two
	if c.CaseMatters {
		by = collators.three
	}
	return string(by.KeyFromString(&collate.Buffer{}, s))
}

// HasText reports whether a collation would change how v compares.
func HasText(v any) bool {
	switch t := v.(type) {
	case string, bson.Symbol:
		return true
	case bson.A:
		return slices.ContainsFunc(t, HasText)
	case bson.D:
		for _, e := range t {
			if HasText(e.Value) {
				return true
			}
		}
	}
	return false
}
