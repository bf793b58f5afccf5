package kusto

import (
	"fmt"
	"regexp"
	"strings"
)

type token struct {
	kind byte // i: a name, n: a number, t: a time span, s: a text, o: an operator, e: the end
	text string
}

var scanners = []struct {
	kind byte
	form *regexp.Regexp
}{
	{' ', regexp.MustCompile(`^(?:\s+|//[^\n]*)`)},
	{'t', regexp.MustCompile(`^\d+(?:ms|[smhd])\b`)},
	{'n', regexp.MustCompile(`^\d+(?:\.\d+)?`)},
	{'s', regexp.MustCompile(`^@?'[^']*'`)},
	{'i', regexp.MustCompile(`^[A-Za-z_]\w*`)},
	{'o', regexp.MustCompile(`^(?:==|!=|<=|>=|[-+*/<>=(),.|;])`)},
}

// scan splits a query into tokens. It returns an error for anything that is not a token.
func scan(query string) ([]token, error) {
	var tokens []token
next:
	for query != "" {
		for _, s := range scanners {
			text := s.form.FindString(query)
			if text == "" {
				continue
			}
			query = query[len(text):]
			switch s.kind {
			case ' ':
			case 's':
				tokens = append(tokens, token{'s', strings.Trim(strings.TrimPrefix(text, "@"), "'")})
			default:
				tokens = append(tokens, token{s.kind, text})
			}
			continue next
		}
		return nil, fmt.Errorf("no token of a query that is known here: %.20q", query)
	}
	return append(tokens, token{'e', ""}), nil
}
