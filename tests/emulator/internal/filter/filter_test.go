package filter_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/filter"
)

type message struct{ user, system map[string]any }

func (m message) User(name string) (any, bool)   { v, ok := m.user[name]; return v, ok }
func (m message) System(name string) (any, bool) { v, ok := m.system[name]; return v, ok }

var sample = message{
	user: map[string]any{
		"color": "red", "count": int32(7), "price": 2.5, "big": int64(1) << 53, "flag": true,
		"empty": "", "percent": "50%", "my prop": "x", "from-where": "y", "none": nil,
	},
	system: map[string]any{"label": "order", "sessionid": "s1"},
}

func TestSQLSelects(t *testing.T) {
	for expression, want := range map[string]bool{
		"1=1": true, "1=0": false, "1 = 1.0": true, "TRUE": true, "false": false,
		"color = 'red'": true, "COLOR = 'red'": false, "color = 'RED'": false, "color <> 'blue'": true, "color != 'red'": false,
		"user.color = 'red'": true, "sys.Label = 'order'": true, "sys.sessionId LIKE 's_'": true, "Label = 'order'": false,
		"count > 6 AND count < 8": true, "count >= 7.5": false, "count <= 7": true, "price * 2 = 5": true,
		"big + 1 > big": true, "count / 2 = 3": true, "count % 4 = 3": true, "-count = -7": true, "1 - 2 - 3 = -4": true,
		"color = 'blue' OR flag": true, "NOT flag": false, "not (color = 'blue')": true,
		"1=1 OR 1=1 AND 1=0": true, "(1=1 OR 1=1) AND 1=0": false,
		"color LIKE 'r%'": true, "color LIKE '%e%'": true, "color LIKE 'r_'": false, "color NOT LIKE 'b%'": true,
		"percent LIKE '50!%' ESCAPE '!'": true, "color LIKE 'r!%' ESCAPE '!'": false, "empty LIKE '%'": true,
		"color IN ('blue', 'red')": true, "color NOT IN ('blue')": true, "count IN (1, 2)": false,
		"EXISTS(color)": true, "EXISTS(missing)": false, "exists(sys.label)": true,
		"missing IS NULL": true, "none IS NULL": true, "color IS NOT NULL": true,
		"[my prop] = 'x'": true, `"my prop" = 'x'`: true, "from-where = 'y'": true, "'it''s' = 'it''s'": true,
		// Unknown is neither true nor false.
		"missing = 'x'": false, "NOT (missing = 'x')": false, "missing <> 'x'": false, "missing = 'x' OR flag": true,
		"missing = 1 AND 1=0 OR flag": true, "color = 7": false, "color <> 7": false, "missing NOT IN (1)": false,
		"@p = color": true, "count IN (@n)": true,
	} {
		f, err := filter.ParseSQL(expression, map[string]any{"@p": "red", "@n": int64(7)})
		require.NoError(t, err, expression)
		got, err := f.Match(sample)
		require.NoError(t, err, expression)
		require.Equal(t, want, got, expression)
	}
}

func TestSQLRefuses(t *testing.T) {
	for expression, problem := range map[string]string{
		"": "the end", "color =": "a value", "color = 'red": "not closed", "(1=1": "want )", "1=1)": "want the end",
		"color LIKE": "a value", "a NOT 1": "LIKE or IN", "a IS 1": "want NULL", "@x = 1": "has no value",
		"sys.Nothing = 1": "not supported", "other.x = 1": "neither user nor sys", "newid() = 1": "function newid is not supported",
		"a = 1 b = 2": "want the end", "a ! b": "unexpected", "99999999999999999999 = 1": "is not a number",
		strings.Repeat("(", 100) + "1=1" + strings.Repeat(")", 100): "nested more than",
		strings.Repeat("NOT ", 100) + "1=1":                         "nested more than",
		strings.Repeat("-", 100) + "1=1":                            "nested more than",
		strings.Repeat(" ", filter.MaxLength+1):                     "bytes, more than",
	} {
		_, err := filter.ParseSQL(expression, nil)
		require.ErrorContains(t, err, problem, expression)
	}
}

func TestSQLFailsOnWhatCannotBeEvaluated(t *testing.T) {
	for _, expression := range []string{"count / 0 = 1", "color AND flag", "color * 2 = 1", "color LIKE 'r' ESCAPE 'ab'"} {
		f, err := filter.ParseSQL(expression, nil)
		require.NoError(t, err, expression)
		_, err = f.Match(sample)
		require.Error(t, err, expression)
	}
}

func TestCorrelationNeedsEveryProperty(t *testing.T) {
	match := func(c filter.Correlation) bool {
		got, err := c.Match(sample)
		require.NoError(t, err)
		return got
	}
	require.True(t, match(filter.Correlation{System: map[string]string{"label": "order"}, User: map[string]any{"count": int64(7)}}))
	require.False(t, match(filter.Correlation{System: map[string]string{"label": "order"}, User: map[string]any{"count": int64(8)}}))
	require.False(t, match(filter.Correlation{System: map[string]string{"to": "order"}}))
	require.False(t, match(filter.Correlation{User: map[string]any{"missing": nil}}))
}

func TestActionChangesInOrder(t *testing.T) {
	a, err := filter.ParseAction("SET color = color + '!'; SET copy = color; REMOVE flag SET gone = flag", nil)
	require.NoError(t, err)
	got, err := a.Apply(sample)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"color": "red!", "copy": "red!", "flag": filter.Removed{}, "gone": nil}, got)

	for text, problem := range map[string]string{
		"": "no statement", "SET a": "want =", "DROP a": "SET or REMOVE", "SET sys.Label = 'x'": "changing system property",
	} {
		_, err := filter.ParseAction(text, nil)
		require.ErrorContains(t, err, problem, text)
	}
}

// FuzzSQL searches for a panic, an endless evaluation, or a filter whose own text does not parse to
// the same filter.
func FuzzSQL(f *testing.F) {
	for _, s := range []string{
		"a = 1 AND b LIKE 'x%' ESCAPE '\\'", "NOT (sys.Label IN ('a', 'b')) OR EXISTS([c d])",
		"a IS NOT NULL AND -b*2 % 3 >= 1.5e3", "SET a = 'b'; REMOVE c", "((((1=1))))", "'", "[", "@p", "a NOT LIKE '%%%_%%%'",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if q, err := filter.ParseSQL(s, map[string]any{"@p": int64(1)}); err == nil {
			_, _ = q.Match(sample)
			_, err := filter.ParseSQL(q.String(), map[string]any{"@p": int64(1)})
			require.NoError(t, err)
		}
		if a, err := filter.ParseAction(s, nil); err == nil {
			_, _ = a.Apply(sample)
		}
	})
}
