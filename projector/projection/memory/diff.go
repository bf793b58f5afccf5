package memory

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// Diff lists how a document differs from the expected one, such as `customer.name is "x", expected
// "y"` or, if they have the same text, `total is "1" (string), expected 1 (32-bit integer)`, in the
// order of the expected document. The list is empty if they are equal. The order of fields does not
// count; the type of a value does.
func Diff(want, got bson.D) []string {
	return diff(nil, "", want, got, equal)
}

// DiffNumbers is like [Diff], except that numbers of different types are equal if their values are.
func DiffNumbers(want, got bson.D) []string {
	return diff(nil, "", want, got, func(a, b any) bool {
		if class(a) == classNumber && class(b) == classNumber {
			return compareNumbers(a, b) == 0
		}
		return equal(a, b)
	})
}

func diff(found []string, path string, want, got any, equal func(a, b any) bool) []string {
	w, wantDocument := want.(bson.D)
	g, gotDocument := got.(bson.D)
	if wantDocument && gotDocument {
		for i, e := range w {
			found = diff(found, join(path, e.Key), e.Value, nth(g, e.Key, count(w[:i], e.Key)), equal)
		}
		for i, e := range g {
			if nth(w, e.Key, count(g[:i], e.Key)) == any(missing{}) {
				found = diff(found, join(path, e.Key), missing{}, e.Value, equal)
			}
		}
		return found
	}
	a, wantArray := want.(bson.A)
	b, gotArray := got.(bson.A)
	if wantArray && gotArray && !equal(a, b) && sameMembers(a, b) {
		return append(found, fmt.Sprintf("%s has the expected members in another order: it is %s, expected %s", path, Text(b), Text(a)))
	}
	if wantArray && gotArray && len(a) == len(b) {
		for i := range a {
			found = diff(found, fmt.Sprintf("%s.%d", path, i), a[i], b[i], equal)
		}
		return found
	}
	if !equal(want, got) {
		is, expected := apart(got, want)
		found = append(found, fmt.Sprintf("%s is %s, expected %s", path, is, expected))
	}
	return found
}

// sameMembers reports whether two arrays differ in their order alone.
func sameMembers(a, b bson.A) bool {
	if len(a) != len(b) {
		return false
	}
	count := make(map[string]int, len(a))
	for i := range a {
		count[text(a[i], true)]++
		count[text(b[i], true)]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

// apart shows two values that differ, with their types if they have the same text: "1" and 1, 1 and
// 1.0.
func apart(a, b any) (one, other string) {
	one, other = Text(a), Text(b)
	if bare(one) != bare(other) {
		return one, other
	}
	x, y := typeOf(a), typeOf(b)
	if x == y {
		return text(a, true), text(b, true)
	}
	return one + " (" + x + ")", other + " (" + y + ")"
}

// bare returns a value's text without what is easily overlooked.
func bare(text string) string { return strings.TrimSuffix(strings.Trim(text, `"`), ".0") }

// typeOf returns the name of a value's type.
func typeOf(v any) string {
	raw, err := bson.Marshal(bson.D{{Key: "v", Value: v}})
	if _, ok := v.(missing); ok || err != nil {
		return "missing"
	}
	return bson.Raw(raw).Lookup("v").Type.String()
}

func field(d bson.D, key string) any { return nth(d, key, 0) }

// count returns how many fields of a document have a name: MongoDB stores a name that comes twice.
func count(d bson.D, key string) (n int) {
	for _, e := range d {
		if e.Key == key {
			n++
		}
	}
	return n
}

// nth returns the field of a name behind n others of that name.
func nth(d bson.D, key string, n int) any {
	for _, e := range d {
		if e.Key != key {
			continue
		}
		if n == 0 {
			return e.Value
		}
		n--
	}
	return missing{}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// equal compares two values by type and bytes.
func equal(a, b any) bool {
	if a == any(missing{}) || b == any(missing{}) {
		return a == b
	}
	one, err := bson.Marshal(bson.D{{Key: "v", Value: a}}) // MarshalValue takes no nil
	other, otherErr := bson.Marshal(bson.D{{Key: "v", Value: b}})
	return err == nil && otherErr == nil && bytes.Equal(one, other)
}

// longest is how many bytes of a value [Text] keeps.
const longest = 200

// Text returns a value for people: relaxed Extended JSON, shortened if it is long.
func Text(v any) string { return text(v, false) }

// text returns Extended JSON; canonical distinguishes 1 from int64 1 and 1.0.
func text(v any, canonical bool) string {
	if _, ok := v.(missing); ok {
		return "missing"
	}
	written, err := bson.MarshalExtJSON(bson.D{{Key: "v", Value: v}}, canonical, false)
	if err != nil {
		return fmt.Sprint(v)
	}
	s := strings.TrimSuffix(strings.TrimPrefix(string(written), `{"v":`), "}")
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:longest], "") + "…"
	}
	return s
}

// Same compares two events' writes by value. It is not enough to compare BSON: a time in it has
// milliseconds, and two readings of a clock can fall into the same one.
func Same(a, b []projection.Write) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	one, err := bson.Marshal(bson.D{{Key: "v", Value: a}})
	other, otherErr := bson.Marshal(bson.D{{Key: "v", Value: b}})
	return err == nil && otherErr == nil && bytes.Equal(one, other) && fmt.Sprintf("%#v", a) == fmt.Sprintf("%#v", b)
}
