package query

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// js reads Extended JSON, so that tables stay readable.
func js(t *testing.T, s string) bson.D {
	t.Helper()
	var raw bson.Raw
	require.NoError(t, bson.UnmarshalExtJSON([]byte(s), false, &raw), s)
	d, err := value.Decode(raw)
	require.NoError(t, err)
	return d
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		filter, doc string
		want        bool
	}{
		{`{"a": 1}`, `{"a": 1.0}`, true},
		{`{"a": 1}`, `{"a": [3, 1]}`, true},
		{`{"a": [3, 1]}`, `{"a": [3, 1]}`, true},
		{`{"a": [1, 3]}`, `{"a": [3, 1]}`, false},
		{`{"a": null}`, `{}`, true},
		{`{"a": null}`, `{"a": 0}`, false},
		{`{"a.b": 1}`, `{"a": [{"b": 2}, {"b": 1}]}`, true},
		{`{"a.1.b": 1}`, `{"a": [{"b": 2}, {"b": 1}]}`, true},
		{`{"a": {"b": 1}}`, `{"a": {"b": 1, "c": 1}}`, false},
		{`{"a": {"$ne": 1}}`, `{"a": [1, 2]}`, false},
		{`{"a": {"$ne": 1}}`, `{}`, true},
		{`{"a": {"$gt": 1}}`, `{"a": "x"}`, false},
		{`{"a": {"$gt": 1, "$lt": 3}}`, `{"a": [0, 5]}`, true},
		{`{"a": {"$elemMatch": {"$gt": 1, "$lt": 3}}}`, `{"a": [0, 5]}`, false},
		{`{"a": {"$elemMatch": {"x": 1, "y": 2}}}`, `{"a": [{"x": 1}, {"x": 1, "y": 2}]}`, true},
		{`{"a": {"$lt": "82B"}}`, `{"a": "82A"}`, true},
		{`{"a": {"$lt": "82B"}}`, `{}`, false},
		{`{"a": {"$gte": null}}`, `{}`, true},
		{`{"a": {"$in": [1, null]}}`, `{}`, true},
		{`{"a": {"$nin": [1, 2]}}`, `{"a": [2]}`, false},
		{`{"a": {"$exists": false}}`, `{"a": null}`, false},
		{`{"a.b": {"$exists": false}}`, `{"a": [1]}`, true},
		{`{"a": {"$type": "number"}}`, `{"a": {"$numberLong": "4"}}`, true},
		{`{"a": {"$type": ["string", "array"]}}`, `{"a": [1]}`, true},
		{`{"a": {"$regex": "^AB", "$options": "i"}}`, `{"a": "abc"}`, true},
		{`{"a": {"$all": [1, 2]}}`, `{"a": [2, 3, 1]}`, true},
		{`{"a": {"$size": 2}}`, `{"a": [1, 2]}`, true},
		{`{"a": {"$not": {"$gt": 1}}}`, `{}`, true},
		{`{"a": {"$mod": [4, 1]}}`, `{"a": 9}`, true},
		{`{"$or": [{"a": 1}, {"b": 1}]}`, `{"b": 1}`, true},
		{`{"$nor": [{"a": 1}, {"b": 1}]}`, `{"b": 1}`, false},
		{`{"$and": [{"a": 1}, {"b": 1}]}`, `{"b": 1}`, false},
		{`{"$expr": {"$gt": ["$a", "$b"]}}`, `{"a": 3, "b": 2}`, true},
		{`{"a": {"$gt": {"$numberLong": "9007199254740992"}}}`, `{"a": {"$numberLong": "9007199254740993"}}`, true},
	} {
		m, err := Compile(js(t, c.filter), &Env{})
		require.NoError(t, err, c.filter)
		got, err := m.Match(js(t, c.doc))
		require.NoError(t, err, c.filter)
		require.Equal(t, c.want, got, "%s on %s", c.filter, c.doc)
	}
}

func TestUpdate(t *testing.T) {
	for _, c := range []struct{ update, doc, want string }{
		{`{"$set": {"b": 1, "a.x": 2}}`, `{"_id": 1}`, `{"_id": 1, "a": {"x": 2}, "b": 1}`},
		{`{"$set": {"a.3": 9}}`, `{"a": [1]}`, `{"a": [1, null, null, 9]}`},
		{`{"$unset": {"a.0": 1, "b": 1}}`, `{"a": [1, 2], "b": 1}`, `{"a": [null, 2]}`},
		{`{"$inc": {"n": 1}}`, `{"n": 2147483647}`, `{"n": {"$numberLong": "2147483648"}}`},
		{`{"$inc": {"n": 1.5}}`, `{"n": 1}`, `{"n": 2.5}`},
		{`{"$mul": {"n": 3, "m": 3}}`, `{"n": 2}`, `{"n": 6, "m": 0}`},
		{`{"$min": {"n": 1}, "$max": {"m": "z"}}`, `{"n": 2, "m": 5}`, `{"n": 1, "m": "z"}`},
		{`{"$setOnInsert": {"n": 1}}`, `{"a": 1}`, `{"a": 1}`},
		{`{"$rename": {"a": "b.c"}}`, `{"a": 1}`, `{"b": {"c": 1}}`},
		{`{"$push": {"a": {"$each": [5, 1], "$sort": -1, "$slice": 2}}}`, `{"a": [3]}`, `{"a": [5, 3]}`},
		{`{"$push": {"a": {"$each": [9], "$position": 0}}}`, `{"a": [3]}`, `{"a": [9, 3]}`},
		{`{"$push": {"a": 1}}`, `{}`, `{"a": [1]}`},
		{`{"$addToSet": {"a": {"$each": [1, 2, 2]}}}`, `{"a": [1]}`, `{"a": [1, 2]}`},
		{`{"$pull": {"a": {"$gt": 2}}}`, `{"a": [1, 3, 2, 4]}`, `{"a": [1, 2]}`},
		{`{"$pull": {"a": {"x": 1}}}`, `{"a": [{"x": 1, "y": 1}, {"x": 2}]}`, `{"a": [{"x": 2}]}`},
		{`{"$pop": {"a": -1}}`, `{"a": [1, 2]}`, `{"a": [2]}`},
		{`{"x": 1}`, `{"_id": 7, "a": 1}`, `{"_id": 7, "x": 1}`},
	} {
		u, err := CompileUpdate(js(t, c.update), &Env{Now: time.Unix(0, 0)})
		require.NoError(t, err, c.update)
		old := js(t, c.doc)
		got, _, err := u.Apply(old, false)
		require.NoError(t, err, c.update)
		require.Equal(t, js(t, c.want), got, "%s on %s", c.update, c.doc)
		require.Equal(t, js(t, c.doc), old, "the old document is not touched")
	}
}

func TestUpdateRefusals(t *testing.T) {
	for update, doc := range map[string]string{
		`{"$inc": {"n": 1}}`:                   `{"n": "x"}`,
		`{"$set": {"a.b": 1}}`:                 `{"a": 1}`,
		`{"$set": {"a": 1, "a.b": 2}}`:         `{}`,
		`{"$set": {"a": 1}, "$inc": {"a": 1}}`: `{}`,
		`{"$set": {"_id": 2}}`:                 `{"_id": 1}`,
		`{"_id": 2}`:                           `{"_id": 1}`,
		`{"$push": {"a": 1}}`:                  `{"a": 1}`,
		`{"$set": {"a.$": 1}}`:                 `{"a": [1]}`,
		`{"$nosuch": {"a": 1}}`:                `{}`,
		`{"$set": {"$a": 1}}`:                  `{}`,
	} {
		u, err := CompileUpdate(js(t, update), &Env{})
		if err == nil {
			_, _, err = u.Apply(js(t, doc), false)
		}
		require.Error(t, err, update)
	}
}

func TestExpressions(t *testing.T) {
	for _, c := range []struct{ expr, doc, want string }{
		{`{"$cond": [{"$gte": ["$a", 2]}, "big", "small"]}`, `{"a": 2}`, `"big"`},
		{`{"$ifNull": ["$x", "$y", 3]}`, `{"y": null}`, `3`},
		{`{"$add": ["$a", 1, 2.5]}`, `{"a": 1}`, `4.5`},
		{`{"$subtract": ["$a", 1]}`, `{"a": null}`, `null`},
		{`{"$concat": ["a", {"$toString": "$n"}]}`, `{"n": 5}`, `"a5"`},
		{`{"$mergeObjects": ["$o", {"b": 2}]}`, `{"o": {"a": 1, "b": 1}}`, `{"a": 1, "b": 2}`},
		{`{"$arrayToObject": {"$filter": {"input": {"$objectToArray": "$o"}, "as": "e", "cond": {"$gt": ["$$e.v", 1]}}}}`, `{"o": {"a": 1, "b": 2}}`, `{"b": 2}`},
		{`{"$setField": {"field": {"$literal": "x.y"}, "input": "$o", "value": {"$add": [{"$ifNull": [{"$getField": {"field": {"$literal": "x.y"}, "input": "$o"}}, 0]}, 1]}}}`, `{"o": {"x.y": 4}}`, `{"x.y": 5}`},
		{`{"$let": {"vars": {"v": {"$multiply": ["$a", 2]}}, "in": {"$add": ["$$v", 1]}}}`, `{"a": 3}`, `7`},
		{`{"$switch": {"branches": [{"case": {"$eq": ["$a", 1]}, "then": "one"}], "default": "other"}}`, `{"a": 2}`, `"other"`},
		{`{"$map": {"input": "$l", "as": "x", "in": {"$max": ["$$x", 2]}}}`, `{"l": [1, 5]}`, `[2, 5]`},
		{`{"$reduce": {"input": "$l", "initialValue": 0, "in": {"$add": ["$$value", "$$this"]}}}`, `{"l": [1, 5]}`, `6`},
		{`"$l.x"`, `{"l": [{"x": 1}, {"y": 2}, {"x": 3}]}`, `[1, 3]`},
		{`{"$and": [{"$not": ["$missing"]}, {"$or": ["$a", false]}]}`, `{"a": 1}`, `true`},
	} {
		e, err := CompileExpr(js(t, `{"e": `+c.expr+`}`)[0].Value)
		require.NoError(t, err, c.expr)
		got, err := e.Eval(js(t, c.doc), &Env{})
		require.NoError(t, err, c.expr)
		require.Equal(t, js(t, `{"e": `+c.want+`}`)[0].Value, got, c.expr)
	}
}

func TestPipelines(t *testing.T) {
	for _, c := range []struct{ stages, doc, want string }{
		{`[{"$project": {"a.b": 1}}]`, `{"_id": 1, "a": [{"b": 1, "c": 2}, 3], "x": 1}`, `{"_id": 1, "a": [{"b": 1}]}`},
		{`[{"$project": {"a.b": 0, "_id": 0}}]`, `{"_id": 1, "a": {"b": 1, "c": 2}}`, `{"a": {"c": 2}}`},
		{`[{"$project": {"s": {"$add": ["$x", 1]}, "x": 1}}]`, `{"_id": 1, "x": 1}`, `{"_id": 1, "x": 1, "s": 2}`},
		{`[{"$set": {"a.n": "$x", "x": "$$REMOVE"}}]`, `{"_id": 1, "a": {"m": 1}, "x": 1}`, `{"_id": 1, "a": {"m": 1, "n": 1}}`},
		{`[{"$unset": ["a", "b.c"]}]`, `{"_id": 1, "a": 1, "b": {"c": 1, "d": 1}}`, `{"_id": 1, "b": {"d": 1}}`},
		{`[{"$replaceWith": {"$mergeObjects": [{"z": 1}, "$a"]}}]`, `{"_id": 1, "a": {"b": 2}}`, `{"z": 1, "b": 2}`},
		{`[{"$unwind": "$l"}, {"$group": {"_id": null, "n": {"$sum": "$l"}, "avg": {"$avg": "$l"}, "c": {"$count": {}}}}]`, `{"l": [1, 2, 6]}`, `{"_id": null, "n": 9, "avg": 3.0, "c": 3}`},
	} {
		stages, err := CompilePipeline(js(t, `{"p": `+c.stages+`}`)[0].Value.(bson.A), &Env{})
		require.NoError(t, err, c.stages)
		got, err := RunPipeline(stages, []bson.D{js(t, c.doc)})
		require.NoError(t, err, c.stages)
		require.Equal(t, []bson.D{js(t, c.want)}, got, c.stages)
	}
}
