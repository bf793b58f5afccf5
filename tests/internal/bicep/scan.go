package bicep

import (
	"fmt"
	"regexp"
	"strings"
)

type tokenKind int

const (
	end tokenKind = iota
	newline
	word // an identifier, keyword or number
	text // a string without ${…}
	interpolated
	sign // punctuation and operators, one character each
)

type token struct {
	kind tokenKind
	text string // the content of a string, otherwise the token as written
	line int
}

// blank matches what is between tokens: spaces, comments and #directives.
var blank = regexp.MustCompile(`^(?:[ \t\r]+|(?://|#)[^\n]*|(?s:/\*.*?\*/))+`)

// scanners are the forms of the tokens. A ${…} may hold braces, and these may hold braces again.
var scanners = []struct {
	kind tokenKind
	form *regexp.Regexp
}{
	{newline, regexp.MustCompile(`^\n`)},
	{word, regexp.MustCompile(`^\w+`)},
	{text, regexp.MustCompile(`^(?s:'''.*?''')`)},
	{text, regexp.MustCompile(`^'(?:[^'\\\n$]|\\[nrt\\'$])*'`)},
	{interpolated, regexp.MustCompile(`^'(?:[^'\\\n$]|\\[nrt\\'$]|\$\{(?:[^{}\n]|\{(?:[^{}\n]|\{[^{}\n]*\})*\})*\})*'`)},
	{sign, regexp.MustCompile(`^[{}\[\]():,.=?!<>&|+\-*/%@;]`)},
}

var escapes = strings.NewReplacer(`\n`, "\n", `\r`, "\r", `\t`, "\t", `\\`, `\`, `\'`, `'`, `\$`, `$`)

// scan splits a source into tokens.
func scan(source string) (tokens []token) {
	line := 1
next:
	for {
		between := blank.FindString(source)
		line += strings.Count(between, "\n")
		source = source[len(between):]
		if source == "" {
			return append(tokens, token{end, "", line})
		}
		for _, s := range scanners {
			found := s.form.FindString(source)
			if found == "" {
				continue
			}
			t := token{s.kind, found, line}
			if inner, is := strings.CutPrefix(found, "'''"); is {
				t.text = strings.TrimSuffix(inner, "'''")
			} else if found[0] == '\'' {
				t.text = escapes.Replace(found[1 : len(found)-1])
			}
			tokens = append(tokens, t)
			line += strings.Count(found, "\n")
			source = source[len(found):]
			continue next
		}
		fail("line %d: unexpected %.10q", line, source)
	}
}

// problem is what cannot be read or evaluated.
type problem struct{ error }

func fail(format string, args ...any) { panic(problem{fmt.Errorf(format, args...)}) }

// caught sets the error of the function that defers it, if there is a problem.
func caught(err *error, doing string) {
	switch r := recover().(type) {
	case nil:
	case problem:
		*err = fmt.Errorf("%s: %w", doing, r.error)
	default:
		panic(r)
	}
}
