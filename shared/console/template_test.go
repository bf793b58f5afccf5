package console

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// given returns a set with one template.
func given(t *testing.T, text string) set {
	t.Helper()
	all, err := parseText("test.html", `{{define "t"}}`+text+`{{end}}{{define "other"}}[{{.}}]{{end}}`)
	require.NoError(t, err)
	return all
}

func TestTemplatesAreExecuted(t *testing.T) {
	t.Parallel()
	type inner struct{ Name string }
	data := struct {
		Text    string
		N       int64
		Nil     *inner
		Inner   *inner
		List    []inner
		Empty   []string
		ByName  map[string]int64
		Yes, No bool
		HTML    markup
	}{
		Text: `<a href="x">&'`, N: 7, Inner: &inner{"in"}, List: []inner{{"a"}, {"b"}}, ByName: map[string]int64{"z": 1, "y": 2}, Yes: true, HTML: "<b>",
	}
	for text, want := range map[string]string{
		`{{.Text}}|{{.N}}|{{.HTML}}`:                                           `&lt;a href=&#34;x&#34;&gt;&amp;&#39;|7|<b>`,
		`{{.Inner.Name}}{{.Nil.Name}}`:                                         `in`,
		`{{if .Nil}}a{{else if .Yes}}b{{else}}c{{end}}`:                        `b`,
		`{{with .Inner}}{{.Name}}{{$.N}}{{end}}{{with .Nil}}x{{else}}y{{end}}`: `in7y`,
		`{{range $i, $e := .List}}{{$i}}{{$e.Name}}{{end}}`:                    `0a1b`,
		`{{range .Empty}}x{{else}}none{{end}}`:                                 `none`,
		`{{range $k, $v := .ByName}}{{$k}}{{$v}}{{end}}`:                       `y2z1`,
		`{{$x := .Text}}{{if .Yes}}{{$x = "new"}}{{end}}{{$x}}`:                `new`,
		`{{if and .Yes (not .No)}}a{{end}}{{if or .No .Nil}}b{{end}}`:          `a`,
		`{{template "other" .Inner.Name}}`:                                     `[in]`,
		`{{if eq .Inner.Name "in"}}{{count .N}}{{end}}`:                        `7`,
		`?a={{query .Text}}`:                                                   `?a=%3Ca+href%3D%22x%22%3E%26%27`,
	} {
		got, err := given(t, text).execute("t", data, functions)
		require.NoError(t, err, text)
		require.Equal(t, want, string(got), text)
	}
	for _, wrong := range []string{`{{.Absent}}`, `{{.Inner}}`, `{{.List}}`, `{{.N | count}}`, `{{template "absent"}}`} {
		_, err := given(t, wrong).execute("t", data, functions)
		require.Error(t, err, wrong)
	}
}

// A value is written as text or within quotes, where escaping it is enough: never into a tag, an
// attribute without quotes, a script, a style, or an address without query.
func TestValuesStandWhereEscapingIsEnough(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"page.html", "flow.html", "others.html"} {
		text, err := assets.ReadFile("assets/" + file)
		require.NoError(t, err)
		require.NotRegexp(t, `(?i)<script>|<style|\son\w+=|style=`, string(text), file)
		inTag, quoted := false, false
		for rest := string(text); rest != ""; {
			if strings.HasPrefix(rest, "{{") {
				action, after, _ := strings.Cut(rest[2:], "}}")
				control := strings.HasPrefix(action, "if ") || strings.HasPrefix(action, "else") || action == "end" || strings.HasPrefix(action, "$") ||
					strings.HasPrefix(action, "with ") || strings.HasPrefix(action, "range ") || strings.HasPrefix(action, "- range")
				require.True(t, control || !inTag || quoted, "%s: {{%s}} stands in a tag without quotes", file, action)
				rest = after
				continue
			}
			switch c := rest[0]; {
			case c == '"' && inTag:
				quoted = !quoted
			case c == '<' && !quoted:
				inTag = true
			case c == '>' && !quoted:
				inTag = false
			}
			rest = rest[1:]
		}
		for _, address := range strings.SplitAfter(string(text), "=\"")[1:] {
			if value, _, _ := strings.Cut(address, `"`); strings.Contains(value, "aggregate={{") {
				require.Contains(t, value, "aggregate={{query ", file)
			}
		}
	}
}
