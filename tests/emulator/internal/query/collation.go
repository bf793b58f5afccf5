package query

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// ParseCollation reads a command's or a collection's collation; nil is the order of bytes.
func ParseCollation(v any) (*value.Collation, error) {
	d, ok := v.(bson.D)
	switch {
	case v == nil || (ok && len(d) == 0):
		return nil, nil
	case !ok:
		return nil, mongoerr.New(mongoerr.TypeMismatch, "BSON field 'collation' is the wrong type '%s', expected type 'object'", TypeName(v))
	}
	locale, ok := value.Get(d, "locale")
	if !ok {
		return nil, mongoerr.New(mongoerr.MissingField, "BSON field 'collation.locale' is missing but a required field")
	}
	if locale == "simple" {
		if len(d) > 1 {
			return nil, mongoerr.New(mongoerr.BadValue, "A collation of locale simple takes no other options")
		}
		return nil, nil
	}
	if locale != "en" && locale != "en_US" {
		return nil, mongoerr.Unsupported("collation by the locale %v, other than simple and en", locale)
	}
	c := &value.Collation{CaseMatters: true}
	for _, e := range d {
		n, isNumber := value.AsInt(e.Value)
		switch {
		case e.Key == "locale" || e.Key == "version":
		case e.Key == "strength" && isNumber && (n == 2 || n == 3):
			c.CaseMatters = n == 3
		case e.Key == "strength" && (!isNumber || n < 1 || n > 5):
			return nil, mongoerr.New(mongoerr.BadValue, "Enumeration value '%v' for field 'collation.strength' is not a valid value.", e.Value)
		case e.Value == false, e.Key == "caseFirst" && e.Value == "off", e.Key == "alternate" && e.Value == "non-ignorable", e.Key == "maxVariable" && e.Value == "punct":
		default:
			return nil, mongoerr.Unsupported("the collation option %s: %v", e.Key, e.Value)
		}
	}
	return c, nil
}

// WholeCollation returns a collation with all its options, as a server stores it.
func WholeCollation(d bson.D, c *value.Collation) bson.D {
	strength := int32(2)
	if c.CaseMatters {
		strength = 3
	}
	return bson.D{
		{Key: "locale", Value: field(d, "locale")},
		{Key: "caseLevel", Value: false},
		{Key: "caseFirst", Value: "off"},
		{Key: "strength", Value: strength},
		{Key: "numericOrdering", Value: false},
		{Key: "alternate", Value: "non-ignorable"},
		{Key: "maxVariable", Value: "punct"},
		{Key: "normalization", Value: false},
		{Key: "backwards", Value: false},
		{Key: "version", Value: "57.1"},
	}
}

// key returns the value by which v is compared under the command's collation.
func (e *Env) key(v any) any {
	if e == nil {
		return v
	}
	return e.Collation.Key(v)
}

func (e *Env) collated() bool { return e != nil && e.Collation != nil }
