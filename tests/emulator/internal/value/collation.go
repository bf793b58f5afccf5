package value

import (
	"slices"
	"strings"
	"unicode"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Collation is an order of strings other than that of their bytes: English, by letters and not by their case. A nil one is the
// order of bytes. Letters beyond ASCII come after z, by their code points.
type Collation struct {
	// CaseMatters: of two strings that differ in nothing else, the one with the small letter comes first.
	CaseMatters bool
}

// Same says whether two collations order alike.
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

// key puts punctuation before digits before letters, as Unicode's root collation does.
func (c *Collation) key(s string) string {
	var primary, cases strings.Builder
	for _, r := range s {
		lower := unicode.ToLower(unicode.ToUpper(r))
		switch {
		case unicode.IsLetter(r):
			primary.WriteByte(3)
		case unicode.IsDigit(r):
			primary.WriteByte(2)
		default:
			primary.WriteByte(1)
		}
		primary.WriteRune(lower)
		if lower == r {
			cases.WriteByte(1)
		} else {
			cases.WriteByte(2)
		}
	}
	if !c.CaseMatters {
		return primary.String()
	}
	return primary.String() + "\x00" + cases.String()
}

// HasText says whether a collation would change how v compares.
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
