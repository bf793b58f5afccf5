package workload_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/internal/workload"
)

const (
	first  = `{"aggregateId":"a","version":1,"type":"SRM: In Transfer to Execution Syst. (x)","occurredAt":"2026-01-01T00:00:00Z","data":{"n":null}}`
	second = `{"aggregateId":"a","version":2,"type":"T","occurredAt":"2026-01-01T00:00:00Z"}`
)

func TestRead(t *testing.T) {
	t.Parallel()
	events, err := workload.Read(strings.NewReader("\xef\xbb\xbf"+first+"\n\n  \n"+second), "in.ndjson") // a byte order mark is not part of the line
	require.NoError(t, err)
	require.Len(t, events, 2)
	require.Equal(t, "SRM: In Transfer to Execution Syst. (x)", events[0].Type)
	require.EqualValues(t, 2, events[1].Version)
}

func TestReadNamesFileLineAndProblem(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ line, want string }{
		"not JSON":         {`hello`, "is not JSON (invalid character 'h' looking for beginning of value at byte 1), expected an object {aggregateId, "},
		"cut off":          {`{"aggregateId":"a",`, "it ends too early; an event stands in one line, expected an object"},
		"a list":           {`[1]`, "is a JSON array, expected an object"},
		"version is text":  {`{"aggregateId":"a","version":"2","type":"T","occurredAt":"2026-01-01T00:00:00Z"}`, `"version" is a JSON string, expected a whole number`},
		"version is half":  {`{"aggregateId":"a","version":1.5,"type":"T","occurredAt":"2026-01-01T00:00:00Z"}`, `"version" is a JSON number 1.5, expected a whole number`},
		"no aggregate":     {`{"version":2,"type":"T","occurredAt":"2026-01-01T00:00:00Z"}`, `"aggregateId" is missing or empty`},
		"no type":          {`{"aggregateId":"a","version":2,"occurredAt":"2026-01-01T00:00:00Z"}`, `"type" is missing or empty`},
		"no version":       {`{"aggregateId":"a","type":"T","occurredAt":"2026-01-01T00:00:00Z"}`, `"version" is missing or below 1: the versions of an aggregate are 1, 2, 3`},
		"no time":          {`{"aggregateId":"a","version":2,"type":"T"}`, `"occurredAt" is missing or empty`},
		"no real time":     {`{"aggregateId":"a","version":2,"type":"T","occurredAt":"yesterday"}`, `"occurredAt" is "yesterday"`},
		"unknown field":    {`{"aggregateId":"a","version":2,"kind":"T"}`, `unknown field "kind"`},
		"two in a line":    {second + second, "something follows the JSON object"},
		"version again":    {first, `version 1 of aggregate "a" where version 2 must follow`},
		"version left out": {strings.Replace(second, `:2`, `:3`, 1), `version 3 of aggregate "a" where version 2 must follow`},
		"begins at two":    {strings.Replace(second, `"a"`, `"b"`, 1), `version 2 of aggregate "b" where version 1 must follow`},
		"not UTF-8":        {"{\"aggregateId\":\"\xff\"}", "is not UTF-8 text: save"},
		"version is huge":  {`{"aggregateId":"a","version":99999999999999999999,"type":"T"}`, `"version" is a JSON number 99999999999999999999, expected a whole number of at most 64 bits`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := workload.Read(strings.NewReader(first+"\n\n"+test.line+"\n"), "in.ndjson")
			var broken *workload.LineError
			require.ErrorAs(t, err, &broken)
			require.Equal(t, 3, broken.Line, "the empty line counts")
			require.ErrorContains(t, err, "in.ndjson:3: ")
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestReadWithoutEvents(t *testing.T) {
	t.Parallel()
	_, err := workload.Read(strings.NewReader("\n\n"), "in.ndjson")
	require.ErrorContains(t, err, "in.ndjson: it holds no event")
	_, err = workload.Read(strings.NewReader("\xff\xfe{\x00}\x00\n\x00"), "in.ndjson")
	require.ErrorContains(t, err, "in.ndjson:1: is UTF-16 text: save the file as UTF-8")
}

func TestDataKeepsItsTypesAndOrder(t *testing.T) {
	t.Parallel()
	e := workload.Event{AggregateID: "a", Version: 1, Data: []byte(
		`{"z":1,"a":[true,null,"x",1.5,{}],"$date":"not a date","big":9007199254740993,"huge":1e300}`)}
	d, err := e.Document()
	require.NoError(t, err)
	require.Equal(t, bson.D{
		{Key: "z", Value: int64(1)},
		{Key: "a", Value: bson.A{true, nil, "x", 1.5, bson.D{}}},
		{Key: "$date", Value: "not a date"},
		{Key: "big", Value: int64(9007199254740993)},
		{Key: "huge", Value: 1e300},
	}, d[len(d)-1].Value)
}
