package history_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/history"
)

func sessionOf(aggregate string) string { return envelope.SessionID(aggregate) }

func model(t *testing.T, text string) *history.Model {
	t.Helper()
	m, err := history.ReadModel(strings.NewReader(text))
	require.NoError(t, err)
	return m
}

const twoAggregates = `{
	"b": {"events": 3, "types": {"X": 2, "Y (v.2)": 1}, "firstOccurredAt": "t1", "lastOccurredAt": "t3", "lastType": "X"},
	"a": {"events": 1, "types": {"X": 1}, "firstOccurredAt": "t1", "lastOccurredAt": "t1", "lastType": "X"}
}`

func TestCompareEqual(t *testing.T) {
	t.Parallel()
	c := history.Compare(model(t, twoAggregates), model(t, twoAggregates))
	require.True(t, c.OK())
	require.Equal(t, history.Comparison{Aggregates: 2, Right: 2}, c)
}

func TestCompareNamesEveryDifference(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		from, to      string // what is wrong in the actual model
		lost, doubled int64
		differences   []string
	}{
		"lost": {
			`"events": 3, "types": {"X": 2,`, `"events": 2, "types": {"X": 1,`, 1, 0,
			[]string{`b: events is 2, expected 3; types["X"] is 1, expected 2`},
		},
		"doubled": {
			`"events": 3, "types": {"X": 2,`, `"events": 4, "types": {"X": 3,`, 0, 1,
			[]string{`b: events is 4, expected 3; types["X"] is 3, expected 2`},
		},
		"one lost and one doubled, the sum is right": {
			`{"X": 2, "Y (v.2)": 1}`, `{"X": 3, "Y (v.2)": 0}`, 1, 1,
			[]string{`b: types["X"] is 3, expected 2; types["Y (v.2)"] is 0, expected 1`},
		},
		"the sum alone is wrong": {
			`"events": 3`, `"events": 5`, 0, 2, []string{"b: events is 5, expected 3"},
		},
		"a type of its own": {
			`"Y (v.2)": 1`, `"Y (v": 1`, 1, 1,
			[]string{`b: types["Y (v"] is 1, expected 0; types["Y (v.2)"] is 0, expected 1`},
		},
		"first":     {`"firstOccurredAt": "t1", "lastOccurredAt": "t3"`, `"firstOccurredAt": "t2", "lastOccurredAt": "t3"`, 0, 0, []string{`b: firstOccurredAt is "t2", expected "t1"`}},
		"last":      {`"lastOccurredAt": "t3"`, `"lastOccurredAt": "t9"`, 0, 0, []string{`b: lastOccurredAt is "t9", expected "t3"`}},
		"last type": {`"t3", "lastType": "X"`, `"t3", "lastType": "Y"`, 0, 0, []string{`b: lastType is "Y", expected "X"`}},
		"missing and unexpected": {
			`"b":`, `"c":`, 3, 3,
			[]string{"b: missing, with all its 3 events", "c: should not be there, with 3 events"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wrong := strings.Replace(twoAggregates, test.from, test.to, 1)
			require.NotEqual(t, twoAggregates, wrong)
			c := history.Compare(model(t, twoAggregates), model(t, wrong))
			require.False(t, c.OK())
			require.Equal(t, test.lost, c.Lost)
			require.Equal(t, test.doubled, c.Doubled)
			require.Equal(t, 1, c.Right)
			require.Equal(t, test.differences, c.Differences)
		})
	}
}

func TestFoldOrdersEventsByVersion(t *testing.T) {
	t.Parallel()
	folded := &history.Model{}
	folded.Fold("b", 2, "Y (v.2)", "t0")
	folded.Fold("b", 3, "X", "t3")
	folded.Fold("a", 1, "X", "t1")
	folded.Fold("b", 1, "X", "t1")
	c := history.Compare(model(t, twoAggregates), folded)
	require.Empty(t, c.Differences)
	require.EqualValues(t, 4, folded.Events())
}

func TestReadModelRefusesInvalidInput(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ text, want string }{
		"empty":         {"", "unexpected EOF"},
		"a list":        {"[]", "must be one JSON object"},
		"cut off":       {`{"a": {"events": 1}`, "unexpected EOF"},
		"unknown field": {`{"a": {"event": 1}}`, `aggregate "a": json: unknown field "event"`},
		"wrong type":    {`{"a": {"events": "one"}}`, `aggregate "a"`},
		"twice":         {`{"a": {}, "a": {}}`, `"a" is there twice`},
		"trailing":      {`{} {}`, "something follows"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := history.ReadModel(strings.NewReader(test.text))
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestCompareDocuments(t *testing.T) {
	t.Parallel()
	source := func() *history.Documents {
		d := &history.Documents{}
		d.Add("a", "1", [32]byte{1})
		d.Add("a", "2", [32]byte{2})
		d.Add("b", "3", [32]byte{3})
		return d
	}
	require.Equal(t, history.Comparison{Aggregates: 2, Right: 2}, history.CompareDocuments(source(), source(), nil))

	copied := &history.Documents{}
	copied.Add("c", "4", [32]byte{4})
	copied.Add("a", "2", [32]byte{9})
	copied.Add("b", "3", [32]byte{3})
	require.Equal(t, history.Comparison{
		Aggregates: 2, Right: 1, Lost: 1, Doubled: 1, Mismatches: 2, Unexpected: 1,
		Differences: []string{"a: document 1 is missing", "a: document 2 has another n", "c: document 4 should not be there"},
	}, history.CompareDocuments(source(), copied, func(string) string { return "has another n" }))
	require.Contains(t, history.CompareDocuments(source(), copied, nil).Differences, "a: document 2 differs from its source")
}
