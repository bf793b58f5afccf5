package query

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

func TestPositional(t *testing.T) {
	for _, c := range []struct{ filter, filters, update, doc, want string }{
		{`{"a": {"$gt": 1}}`, ``, `{"$set": {"a.$": 9}}`, `{"a": [1, 2, 3]}`, `{"a": [1, 9, 3]}`},
		{`{"a.k": 2}`, ``, `{"$inc": {"a.$.n": 1}}`, `{"a": [{"k": 1}, {"k": 2, "n": 5}]}`, `{"a": [{"k": 1}, {"k": 2, "n": 6}]}`},
		{`{"x": 1, "a": {"$elemMatch": {"k": 2, "z": true}}}`, ``, `{"$set": {"a.$.n": 1}}`, `{"x": 1, "a": [{"k": 2}, {"k": 2, "z": true}]}`, `{"x": 1, "a": [{"k": 2}, {"k": 2, "z": true, "n": 1}]}`},
		{`{}`, ``, `{"$inc": {"a.$[]": 1}}`, `{"a": [1, 2]}`, `{"a": [2, 3]}`},
		{`{}`, ``, `{"$inc": {"a.$[].b.$[]": 1}}`, `{"a": [{"b": [1]}, {"b": []}, {"b": [2, 3]}]}`, `{"a": [{"b": [2]}, {"b": []}, {"b": [3, 4]}]}`},
		{`{}`, `{"i": {"$gte": 2}}`, `{"$set": {"a.$[i]": 0}}`, `{"a": [1, 2, 3]}`, `{"a": [1, 0, 0]}`},
		{`{}`, `{"$or": [{"i.k": 1}, {"i.k": 3}]}`, `{"$unset": {"a.$[i].k": 1}}`, `{"a": [{"k": 1}, {"k": 2}, {"k": 3}]}`, `{"a": [{}, {"k": 2}, {}]}`},
		{`{}`, `{"i": {"$gt": 5}}`, `{"$set": {"a.$[i]": 0}}`, `{"a": [1, 2]}`, `{"a": [1, 2]}`},
	} {
		u, err := CompileUpdate(js(t, c.update), &Env{})
		require.NoError(t, err, c.update)
		var filters bson.A
		if c.filters != "" {
			filters = bson.A{js(t, c.filters)}
		}
		require.NoError(t, u.Positional(js(t, c.filter), filters), c.update)
		got, _, err := u.Apply(js(t, c.doc), false)
		require.NoError(t, err, c.update)
		require.Equal(t, bson.Raw(value.Encode(js(t, c.want))).String(), bson.Raw(value.Encode(got)).String(), c.update)
	}
}

// The paths are those in the change event of such an update.
func TestPositionalChange(t *testing.T) {
	u, err := CompileUpdate(js(t, `{"$set": {"a.$[i].n": 1}}`), &Env{})
	require.NoError(t, err)
	require.NoError(t, u.Positional(bson.D{}, bson.A{js(t, `{"i.k": 2}`)}))
	_, change, err := u.Apply(js(t, `{"a": [{"k": 1}, {"k": 2}]}`), false)
	require.NoError(t, err)
	require.Equal(t, bson.D{{Key: "a.1.n", Value: int32(1)}}, change.Updated)
}

func TestPositionalErrors(t *testing.T) {
	for _, c := range []struct {
		filter, filters, update, doc string
		code                         int32
	}{
		{`{"b": 1}`, ``, `{"$set": {"a.$": 9}}`, `{"a": [1], "b": 1}`, mongoerr.BadValue},
		{`{}`, ``, `{"$set": {"a.$[]": 9}}`, `{}`, mongoerr.BadValue},
		{`{}`, ``, `{"$set": {"a.$[]": 9}}`, `{"a": 1}`, mongoerr.BadValue},
		{`{}`, ``, `{"$set": {"a.$[i]": 9}}`, `{"a": [1]}`, mongoerr.BadValue},
		{`{}`, `{"i": 1}`, `{"$set": {"a": 9}}`, `{"a": [1]}`, mongoerr.FailedToParse},
		{`{}`, `{"I": 1}`, `{"$set": {"a.$[I]": 9}}`, `{"a": [1]}`, mongoerr.BadValue},
		{`{}`, `{"i": 1}`, `{"a": 9}`, `{"a": [1]}`, mongoerr.FailedToParse},
	} {
		u, err := CompileUpdate(js(t, c.update), &Env{})
		require.NoError(t, err, c.update)
		var filters bson.A
		if c.filters != "" {
			filters = bson.A{js(t, c.filters)}
		}
		if err = u.Positional(js(t, c.filter), filters); err == nil {
			_, _, err = u.Apply(js(t, c.doc), false)
		}
		require.True(t, mongoerr.Is(err, c.code), "%s: %v", c.update, err)
	}
}
