package query

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// everyday is a document with fields of many types; the expected results are those of MongoDB's
// manual.
const everyday = `{"at": {"$date": "2024-05-06T07:08:09.123Z"}, "year": {"$date": "2020-12-31T23:30:00Z"}, "oid": {"$oid": "507f1f77bcf86cd799439011"},
	"n": 7, "d": 2.5, "neg": -2.5, "long": {"$numberLong": "9"}, "dec": {"$numberDecimal": "1.10"}, "text": "  Ünïcode bar  ", "word": "banana", "list": [3, 1, 2, 1], "other": [1, 4],
	"rows": [{"k": 2, "v": "b"}, {"k": 1, "v": "a"}], "null": null}`

func TestEverydayExpressions(t *testing.T) {
	for expr, want := range map[string]string{
		`{"$year": "$at"}`: `2024`, `{"$month": "$at"}`: `5`, `{"$dayOfMonth": "$at"}`: `6`, `{"$hour": "$at"}`: `7`, `{"$minute": "$at"}`: `8`, `{"$second": "$at"}`: `9`,
		`{"$millisecond": "$at"}`: `123`, `{"$dayOfWeek": "$at"}`: `2`, `{"$dayOfYear": "$at"}`: `127`, `{"$isoWeek": "$at"}`: `19`, `{"$week": "$at"}`: `18`, `{"$isoDayOfWeek": "$at"}`: `1`,
		`{"$isoWeekYear": "$year"}`: `{"$numberLong": "2020"}`, `{"$isoWeek": "$year"}`: `53`, `{"$year": {"date": "$year", "timezone": "Europe/Berlin"}}`: `2021`,
		`{"$hour": {"date": "$at", "timezone": "-03:30"}}`: `3`, `{"$year": "$oid"}`: `2012`, `{"$year": "$null"}`: `null`, `{"$month": ["$at"]}`: `5`,
		`{"$dateToString": {"date": "$at"}}`: `"2024-05-06T07:08:09.123Z"`, `{"$dateToString": {"date": "$at", "format": "%Y/%m/%d %H:%M:%S.%L %j %u %V %G %%"}}`: `"2024/05/06 07:08:09.123 127 1 19 2024 %"`,
		`{"$dateToString": {"date": "$at", "format": "%H %z", "timezone": "Asia/Kolkata"}}`: `"12 +0530"`, `{"$dateToString": {"date": "$null", "onNull": "none"}}`: `"none"`,
		`{"$dateFromString": {"dateString": "2017-02-08T12:10:40.787"}}`:                                                                 `{"$date": "2017-02-08T12:10:40.787Z"}`,
		`{"$dateFromString": {"dateString": "2017-02-08", "timezone": "America/New_York"}}`:                                              `{"$date": "2017-02-08T05:00:00Z"}`,
		`{"$dateFromString": {"dateString": "06-15-2018", "format": "%m-%d-%Y"}}`:                                                        `{"$date": "2018-06-15T00:00:00Z"}`,
		`{"$dateFromString": {"dateString": "no date", "onError": "bad"}}`:                                                               `"bad"`,
		`{"$dateToParts": {"date": "$at"}}`:                                                                                              `{"year": 2024, "month": 5, "day": 6, "hour": 7, "minute": 8, "second": 9, "millisecond": 123}`,
		`{"$dateFromParts": {"year": 2017, "month": 2, "day": 8, "hour": 12}}`:                                                           `{"$date": "2017-02-08T12:00:00Z"}`,
		`{"$dateFromParts": {"year": 2017, "month": 14, "day": 0}}`:                                                                      `{"$date": "2018-01-31T00:00:00Z"}`,
		`{"$dateFromParts": {"isoWeekYear": 2017, "isoWeek": 6, "isoDayOfWeek": 3, "hour": 12}}`:                                         `{"$date": "2017-02-08T12:00:00Z"}`,
		`{"$dateAdd": {"startDate": {"$date": "2020-10-31T12:00:00Z"}, "unit": "month", "amount": 1}}`:                                   `{"$date": "2020-11-30T12:00:00Z"}`,
		`{"$dateSubtract": {"startDate": "$at", "unit": "hour", "amount": 8}}`:                                                           `{"$date": "2024-05-05T23:08:09.123Z"}`,
		`{"$dateDiff": {"startDate": {"$date": "2021-01-31T00:00:00Z"}, "endDate": {"$date": "2021-02-01T00:00:00Z"}, "unit": "month"}}`: `{"$numberLong": "1"}`,
		`{"$dateDiff": {"startDate": {"$date": "2021-03-28T23:59:00Z"}, "endDate": {"$date": "2021-03-29T00:01:00Z"}, "unit": "day"}}`:   `{"$numberLong": "1"}`,
		`{"$dateDiff": {"startDate": "$at", "endDate": "$year", "unit": "year"}}`:                                                        `{"$numberLong": "-4"}`,
		`{"$dateDiff": {"startDate": {"$date": "2021-03-20T00:00:00Z"}, "endDate": {"$date": "2021-03-22T00:00:00Z"}, "unit": "week"}}`:  `{"$numberLong": "1"}`,
		`{"$dateTrunc": {"date": "$at", "unit": "month"}}`:                                                                               `{"$date": "2024-05-01T00:00:00Z"}`,
		`{"$dateTrunc": {"date": {"$date": "2021-03-20T11:30:05Z"}, "unit": "week", "startOfWeek": "monday"}}`:                           `{"$date": "2021-03-15T00:00:00Z"}`,
		`{"$dateTrunc": {"date": {"$date": "2021-03-20T11:30:05Z"}, "unit": "hour", "binSize": 2}}`:                                      `{"$date": "2021-03-20T10:00:00Z"}`,
		`{"$toDate": "2018-03-20"}`: `{"$date": "2018-03-20T00:00:00Z"}`, `{"$toDate": {"$numberLong": "1"}}`: `{"$date": "1970-01-01T00:00:00.001Z"}`,

		`{"$pow": ["$n", 2]}`: `49`, `{"$pow": [2, 40]}`: `{"$numberLong": "1099511627776"}`, `{"$pow": [2, -1]}`: `0.5`, `{"$sqrt": 9}`: `3.0`, `{"$exp": 0}`: `1.0`,
		`{"$log10": 100}`: `2.0`, `{"$round": ["$d", 0]}`: `2.0`, `{"$round": "$neg"}`: `-2.0`, `{"$round": [1234, -2]}`: `1200`, `{"$round": [10.55, 1]}`: `10.6`, `{"$trunc": [7.85, 1]}`: `7.8`, `{"$trunc": "$neg"}`: `-2.0`,
		`{"$bitAnd": [6, 3]}`: `2`, `{"$bitOr": [4, {"$numberLong": "1"}]}`: `{"$numberLong": "5"}`, `{"$bitXor": [6, 3]}`: `5`, `{"$bitNot": 5}`: `-6`,
		`{"$add": ["$dec", 1]}`: `{"$numberDecimal": "2.10"}`, `{"$multiply": ["$dec", "$dec"]}`: `{"$numberDecimal": "1.2100"}`, `{"$subtract": ["$dec", 2]}`: `{"$numberDecimal": "-0.90"}`,
		`{"$divide": ["$dec", 2]}`: `{"$numberDecimal": "0.55"}`, `{"$divide": [1, {"$numberDecimal": "3"}]}`: `{"$numberDecimal": "0.3333333333333333333333333333333333"}`,
		`{"$avg": ["$n", "$d", "text"]}`: `4.75`, `{"$avg": "$list"}`: `1.75`,

		`{"$trim": {"input": "$text"}}`: `"Ünïcode bar"`, `{"$ltrim": {"input": "xxaxx", "chars": "x"}}`: `"axx"`, `{"$rtrim": {"input": "xxaxx", "chars": "x"}}`: `"xxa"`,
		`{"$strLenCP": "Ünï"}`: `3`, `{"$strLenBytes": "Ünï"}`: `5`, `{"$substrCP": ["Ünïcode", 1, 2]}`: `"nï"`, `{"$indexOfCP": ["Ünï", "ï"]}`: `2`, `{"$indexOfBytes": ["Ünï", "n"]}`: `2`,
		`{"$indexOfCP": ["$word", "a", 2]}`: `3`, `{"$indexOfCP": ["$word", "x"]}`: `-1`, `{"$strcasecmp": ["a", "B"]}`: `-1`,
		`{"$replaceOne": {"input": "$word", "find": "an", "replacement": "-"}}`: `"b-ana"`, `{"$replaceAll": {"input": "$word", "find": "an", "replacement": "-"}}`: `"b--a"`,
		`{"$regexMatch": {"input": "$word", "regex": "^BAN", "options": "i"}}`: `true`,
		`{"$regexFind": {"input": "$word", "regex": "a(n)"}}`:                  `{"match": "an", "idx": 1, "captures": ["n"]}`,
		`{"$regexFindAll": {"input": "$word", "regex": "an"}}`:                 `[{"match": "an", "idx": 1, "captures": []}, {"match": "an", "idx": 3, "captures": []}]`,

		`{"$convert": {"input": "x", "to": "int", "onError": "no"}}`: `"no"`, `{"$convert": {"input": "5", "to": 16}}`: `5`, `{"$convert": {"input": "$null", "to": "int", "onNull": 0}}`: `0`,
		`{"$toBool": 0}`: `false`, `{"$toBool": "false"}`: `true`, `{"$toObjectId": "507f1f77bcf86cd799439011"}`: `{"$oid": "507f1f77bcf86cd799439011"}`, `{"$toDecimal": "1.50"}`: `{"$numberDecimal": "1.50"}`,

		`{"$range": [0, 10, 3]}`: `[0, 3, 6, 9]`, `{"$range": [3, 0, -1]}`: `[3, 2, 1]`, `{"$reverseArray": "$list"}`: `[1, 2, 1, 3]`, `{"$indexOfArray": ["$list", 2]}`: `2`,
		`{"$setUnion": ["$list", "$other"]}`: `[1, 2, 3, 4]`, `{"$setIntersection": ["$list", "$other"]}`: `[1]`, `{"$setDifference": ["$list", "$other"]}`: `[3, 2]`,
		`{"$setEquals": [[1, 2], [2, 1, 1]]}`: `true`, `{"$setIsSubset": [[1], "$list"]}`: `true`, `{"$allElementsTrue": [[1, 0]]}`: `false`, `{"$anyElementTrue": [[1, 0]]}`: `true`,
		`{"$zip": {"inputs": [["a", "b"], [1]], "useLongestLength": true, "defaults": ["x", 0]}}`: `[["a", 1], ["b", 0]]`, `{"$zip": {"inputs": [["a", "b"], [1]]}}`: `[["a", 1]]`,
		`{"$sortArray": {"input": "$list", "sortBy": -1}}`: `[3, 2, 1, 1]`, `{"$sortArray": {"input": "$rows", "sortBy": {"k": 1}}}`: `[{"k": 1, "v": "a"}, {"k": 2, "v": "b"}]`,
		`{"$firstN": {"n": 2, "input": "$list"}}`: `[3, 1]`, `{"$lastN": {"n": 2, "input": "$list"}}`: `[2, 1]`, `{"$maxN": {"n": 2, "input": "$list"}}`: `[3, 2]`, `{"$minN": {"n": 9, "input": "$list"}}`: `[1, 1, 2, 3]`,
		`{"$filter": {"input": "$list", "cond": {"$lt": ["$$this", 3]}, "limit": 2}}`: `[1, 2]`, `{"$bsonSize": {}}`: `5`,
	} {
		e, err := CompileExpr(js(t, `{"e": `+expr+`}`)[0].Value)
		require.NoError(t, err, expr)
		got, err := e.Eval(js(t, everyday), &Env{})
		require.NoError(t, err, expr)
		require.Equal(t, js(t, `{"e": `+want+`}`)[0].Value, got, expr)
	}
}

func TestEverydayFilters(t *testing.T) {
	for filter, want := range map[string]bool{
		`{"n": {"$bitsAllSet": [0, 1]}}`: true, `{"n": {"$bitsAllSet": 8}}`: false, `{"n": {"$bitsAnySet": [3, 2]}}`: true, `{"n": {"$bitsAllClear": [3, 4]}}`: true,
		`{"n": {"$bitsAnyClear": 7}}`: false, `{"d": {"$bitsAllClear": 0}}`: false, `{"long": {"$bitsAllSet": {"$binary": {"base64": "CQ==", "subType": "00"}}}}`: true,
		`{"n": {"$not": {"$gt": 1, "$lt": 9}}}`: false, `{"n": {"$not": {"$gt": 1, "$lt": 5}}}`: true, `{"none": {"$not": {"$gt": 1, "$lt": 5}}}`: true,
		`{"list": {"$elemMatch": {"$not": {"$gt": 1, "$lt": 9}}}}`: true,
	} {
		m, err := Compile(js(t, filter), &Env{})
		require.NoError(t, err, filter)
		got, err := m.Match(js(t, everyday))
		require.NoError(t, err, filter)
		require.Equal(t, want, got, filter)
	}
}

func TestCollation(t *testing.T) {
	for spec, cases := range map[string]map[string]bool{
		`{"locale": "en", "strength": 2}`: {`{"a": "péter"}`: true, `{"a": {"$in": ["PETER", "Péter"]}}`: true, `{"a": {"$ne": "PETER"}}`: true, `{"a": {"$lt": "PF"}}`: true, `{"a": {"$gte": "P"}}`: true, `{"$expr": {"$eq": ["$a", "péter"]}}`: true},
		`{"locale": "en"}`:                {`{"a": "péter"}`: false, `{"a": "Péter"}`: true, `{"$expr": {"$eq": ["$a", "péter"]}}`: false},
		`{"locale": "simple"}`:            {`{"a": "péter"}`: false, `{"a": {"$lt": "a"}}`: true},
	} {
		c, err := ParseCollation(js(t, spec))
		require.NoError(t, err)
		for filter, want := range cases {
			m, err := Compile(js(t, filter), &Env{Collation: c})
			require.NoError(t, err)
			got, err := m.Match(bson.D{{Key: "a", Value: "Péter"}})
			require.NoError(t, err)
			require.Equal(t, want, got, "%s under %s", filter, spec)
		}
	}
	words := func(by *value.Collation, all ...string) (out []string) {
		s, err := CompileSort(bson.D{{Key: "w", Value: int32(1)}})
		require.NoError(t, err)
		s.Collate(by)
		var docs []bson.D
		for _, w := range all {
			docs = append(docs, bson.D{{Key: "w", Value: w}})
		}
		s.Docs(docs)
		for _, d := range docs {
			out = append(out, d[0].Value.(string))
		}
		return out
	}
	require.Equal(t, []string{"B", "_", "a", "b"}, words(nil, "b", "a", "B", "_"))
	require.Equal(t, []string{"_", "1", "a", "b", "B"}, words(&value.Collation{CaseMatters: true}, "B", "b", "1", "a", "_"))
	require.Equal(t, []string{"a", "B", "b"}, words(&value.Collation{}, "B", "b", "a"))
	for _, refused := range []string{`{"locale": "de"}`, `{"locale": "en", "strength": 1}`, `{"locale": "en", "numericOrdering": true}`} {
		_, err := ParseCollation(js(t, refused))
		require.ErrorContains(t, err, "the embedded MongoDB does not support", refused)
	}
}

func TestEverydayUpdates(t *testing.T) {
	for update, want := range map[string]string{
		`{"$bit": {"n": {"and": 3}}}`: `{"n": 3}`, `{"$bit": {"n": {"or": {"$numberLong": "8"}}}}`: `{"n": {"$numberLong": "15"}}`, `{"$bit": {"n": {"xor": 5}, "m": {"or": 1}}}`: `{"n": 2, "m": 1}`,
	} {
		u, err := CompileUpdate(js(t, update), &Env{})
		require.NoError(t, err, update)
		got, _, err := u.Apply(js(t, `{"n": 7}`), false)
		require.NoError(t, err, update)
		require.Equal(t, js(t, want), got, update)
	}
}

func TestEverydayStages(t *testing.T) {
	docs := []bson.D{js(t, `{"_id": 1, "n": 1, "tags": ["x", "y"]}`), js(t, `{"_id": 2, "n": 5, "tags": []}`), js(t, `{"_id": 3, "n": 6}`), js(t, `{"_id": 4, "n": 6, "up": 2}`)}
	env := &Env{Now: time.Unix(0, 0), Collection: func(name string) ([]bson.D, error) {
		require.Equal(t, "other", name)
		return []bson.D{js(t, `{"_id": "a", "k": 1, "to": "b"}`), js(t, `{"_id": "b", "k": [5, 6], "to": "c"}`), js(t, `{"_id": "c"}`)}, nil
	}}
	for stages, want := range map[string]string{
		`[{"$bucket": {"groupBy": "$n", "boundaries": [0, 5, 10]}}]`:                                                                                            `[{"_id": 0, "count": 1}, {"_id": 5, "count": 3}]`,
		`[{"$bucket": {"groupBy": "$n", "boundaries": [0, 5], "default": "more", "output": {"ids": {"$push": "$_id"}}}}]`:                                       `[{"_id": 0, "ids": [1]}, {"_id": "more", "ids": [2, 3, 4]}]`,
		`[{"$bucketAuto": {"groupBy": "$n", "buckets": 2}}]`:                                                                                                    `[{"_id": {"min": 1, "max": 6}, "count": 2}, {"_id": {"min": 6, "max": 6}, "count": 2}]`,
		`[{"$facet": {"all": [{"$count": "n"}], "big": [{"$match": {"n": {"$gt": 5}}}, {"$project": {"_id": 1}}]}}]`:                                            `[{"all": [{"n": 4}], "big": [{"_id": 3}, {"_id": 4}]}]`,
		`[{"$sortByCount": "$n"}, {"$limit": 1}]`:                                                                                                               `[{"_id": 6, "count": 2}]`,
		`[{"$match": {"_id": {"$lte": 2}}}, {"$unwind": {"path": "$tags", "includeArrayIndex": "i", "preserveNullAndEmptyArrays": true}}]`:                      `[{"_id": 1, "n": 1, "tags": "x", "i": {"$numberLong": "0"}}, {"_id": 1, "n": 1, "tags": "y", "i": {"$numberLong": "1"}}, {"_id": 2, "n": 5, "i": null}]`,
		`[{"$match": {"_id": {"$in": [1, 2]}}}, {"$lookup": {"from": "other", "localField": "n", "foreignField": "k", "as": "o"}}, {"$project": {"o._id": 1}}]`: `[{"_id": 1, "o": [{"_id": "a"}]}, {"_id": 2, "o": [{"_id": "b"}]}]`,
		`[{"$match": {"_id": 1}}, {"$lookup": {"from": "other", "localField": "none", "foreignField": "k", "as": "o"}}, {"$project": {"o._id": 1}}]`:            `[{"_id": 1, "o": [{"_id": "c"}]}]`,
		`[{"$match": {"_id": 2}}, {"$lookup": {"from": "other", "let": {"n": "$n"}, "pipeline": [{"$match": {"$expr": {"$in": ["$$n", {"$cond": [{"$isArray": "$k"}, "$k", ["$k"]]}]}}}, {"$project": {"_id": 1}}], "as": "o"}}, {"$project": {"o": 1}}]`: `[{"_id": 2, "o": [{"_id": "b"}]}]`,
		`[{"$match": {"_id": 1}}, {"$graphLookup": {"from": "other", "startWith": "a", "connectFromField": "to", "connectToField": "_id", "as": "g", "depthField": "d", "maxDepth": 1}}, {"$project": {"g._id": 1, "g.d": 1}}]`:                           `[{"_id": 1, "g": [{"_id": "a", "d": {"$numberLong": "0"}}, {"_id": "b", "d": {"$numberLong": "1"}}]}]`,
		`[{"$match": {"_id": 1}}, {"$project": {"_id": 1}}, {"$unionWith": {"coll": "other", "pipeline": [{"$match": {"_id": "a"}}, {"$project": {"_id": 1}}]}}]`:                                                                                         `[{"_id": 1}, {"_id": "a"}]`,
		`[{"$match": {"_id": {"$in": [1, 4]}}}, {"$redact": {"$cond": [{"$eq": ["$n", 1]}, "$$PRUNE", "$$KEEP"]}}]`:                                                                                                                                       `[{"_id": 4, "n": 6, "up": 2}]`,
		`[{"$group": {"_id": null, "m": {"$mergeObjects": {"up": "$up"}}, "top": {"$maxN": {"n": 2, "input": "$n"}}, "f": {"$firstN": {"n": 1, "input": "$_id"}}}}]`:                                                                                      `[{"_id": null, "m": {"up": 2}, "top": [6, 6], "f": [1]}]`,
		`[{"$documents": [{"x": 1}]}]`: `[{"x": 1}]`,
	} {
		compiled, err := CompilePipeline(js(t, `{"p": `+stages+`}`)[0].Value.(bson.A), env)
		require.NoError(t, err, stages)
		got, err := RunPipeline(compiled, docs)
		require.NoError(t, err, stages)
		require.Equal(t, js(t, `{"r": `+want+`}`)[0].Value, list(got), stages)
	}
}

func TestFindProjection(t *testing.T) {
	const doc = `{"_id": 1, "a": [1, 2, 3, 4], "b": 2, "rows": [{"k": 1}, {"k": 2}, {"k": 2, "z": 1}]}`
	for projection, want := range map[string]string{
		`{"a": {"$slice": 2}}`:                       `{"_id": 1, "a": [1, 2], "b": 2, "rows": [{"k": 1}, {"k": 2}, {"k": 2, "z": 1}]}`,
		`{"a": {"$slice": [-3, 2]}, "b": 1}`:         `{"_id": 1, "a": [2, 3], "b": 2}`,
		`{"a": {"$slice": -1}, "rows": 0}`:           `{"_id": 1, "a": [4], "b": 2}`,
		`{"rows": {"$elemMatch": {"k": 2}}}`:         `{"_id": 1, "rows": [{"k": 2}]}`,
		`{"rows": {"$elemMatch": {"k": 9}}, "b": 1}`: `{"_id": 1, "b": 2}`,
		`{"rows.$": 1}`:                              `{"_id": 1, "rows": [{"k": 2}]}`,
		`{"_id": 1, "a": 0, "rows": 0}`:              `{"_id": 1, "b": 2}`,
		`{"_id": 1}`:                                 `{"_id": 1}`,
		`{"_id": 0, "rows": 0, "a": 0}`:              `{"b": 2}`,
	} {
		p, err := CompileFindProjection(js(t, projection), js(t, `{"rows.k": 2}`), &Env{})
		require.NoError(t, err, projection)
		got, err := p.Apply(js(t, doc))
		require.NoError(t, err, projection)
		require.Equal(t, js(t, want), got, projection)
	}
}

// A refusal distinguishes what a server has and this one does not from what no server has.
func TestRefusalsNameWhatIsUnsupported(t *testing.T) {
	compile := map[string]func(d bson.D) error{
		"filter": func(d bson.D) error { _, err := Compile(d, &Env{}); return err },
		"expr":   func(d bson.D) error { _, err := CompileExpr(d); return err },
		"stage":  func(d bson.D) error { _, err := CompilePipeline(bson.A{d}, &Env{}); return err },
	}
	for _, c := range []struct {
		what, text string
		code       int32
	}{
		{"filter", `{"$where": "true"}`, mongoerr.NotImplemented},
		{"filter", `{"a": {"$near": [1, 2]}}`, mongoerr.NotImplemented},
		{"filter", `{"a": {"$nosuch": 1}}`, mongoerr.BadValue},
		{"filter", `{"a": {"$undefined": true}}`, mongoerr.BadValue},
		{"filter", `{"a": {"$in": [{"$undefined": true}]}}`, mongoerr.BadValue},
		{"expr", `{"$function": {}}`, mongoerr.NotImplemented},
		{"expr", `{"$nosuch": 1}`, 168},
		{"expr", `{"$slice": 1}`, 28667},
		{"expr", `{"$divide": 1}`, 16020},
		{"stage", `{"$project": {"x": {"$nosuch": 1}}}`, 31325},
		{"stage", `{"$project": {"x": {"y": {"$nosuch": 1}}}}`, 31325},
		{"stage", `{"$project": {"x": {"$add": [1, {"$nosuch": 1}]}}}`, 168},
		{"stage", `{"$project": {"x": {"$add": [1, 2], "$nosuch": 1}}}`, 16410},
		{"stage", `{"$project": {"x": {"$function": {}}}}`, mongoerr.NotImplemented},
		{"stage", `{"$addFields": {"x": {"$nosuch": 1}}}`, 168},
		{"stage", `{"$setWindowFields": {}}`, mongoerr.NotImplemented},
		{"stage", `{"$nosuch": {}}`, mongoerr.UnknownStage},
		{"stage", `{"$group": {"_id": 1, "a": {"$median": 1}}}`, mongoerr.NotImplemented},
		{"stage", `{"$group": {"_id": 1, "a": {"$nosuch": 1}}}`, 15952},
	} {
		err := compile[c.what](js(t, c.text))
		require.Error(t, err, c.text)
		require.Equal(t, c.code, mongoerr.From(err).Code, "%s: %v", c.text, err)
	}
}
