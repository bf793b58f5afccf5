package filter

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxLength of an expression in bytes; the service's limit is 1,024 characters.
const MaxLength = 4096

// maxDepth of nesting, so that no expression can exhaust the stack.
const maxDepth = 64

type kind uint8

const (
	end kind = iota
	word
	quoted // a name in brackets or double quotes: never a keyword
	text
	number
	parameter
	punct
)

type token struct {
	kind  kind
	text  string
	value any // of a number
	at    int
}

type lexer struct {
	src string
	pos int
}

func syntax(at int, format string, args ...any) error {
	return fmt.Errorf("sql: at %d: %s", at+1, fmt.Sprintf(format, args...))
}

func (l *lexer) next() (token, error) {
	for l.pos < len(l.src) {
		r, n := utf8.DecodeRuneInString(l.src[l.pos:])
		if !unicode.IsSpace(r) {
			break
		}
		l.pos += n
	}
	if l.pos == len(l.src) {
		return token{kind: end, at: l.pos}, nil
	}
	start := l.pos
	switch c := l.src[start]; {
	case c == '\'':
		s, err := l.quote('\'')
		return token{kind: text, text: s, at: start}, err
	case c == '"':
		s, err := l.quote('"')
		return token{kind: quoted, text: s, at: start}, err
	case c == '[':
		s, err := l.quote(']')
		return token{kind: quoted, text: s, at: start}, err
	case c >= '0' && c <= '9', c == '.' && start+1 < len(l.src) && isDigit(l.src[start+1]):
		return l.number()
	case c == '@':
		l.pos++
		name := l.name()
		if name == "" {
			return token{}, syntax(start, "a parameter needs a name")
		}
		return token{kind: parameter, text: "@" + name, at: start}, nil
	}
	if name := l.name(); name != "" {
		return token{kind: word, text: name, at: start}, nil
	}
	for _, s := range []string{"<>", "!=", "<=", ">="} {
		if strings.HasPrefix(l.src[start:], s) {
			l.pos += 2
			return token{kind: punct, text: s, at: start}, nil
		}
	}
	r, n := utf8.DecodeRuneInString(l.src[start:])
	if !strings.ContainsRune("=<>()+-*/%,.;", r) {
		return token{}, syntax(start, "unexpected %q", r)
	}
	l.pos += n
	return token{kind: punct, text: string(r), at: start}, nil
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// quote reads to the closing character, which doubled stands for itself.
func (l *lexer) quote(closing byte) (string, error) {
	start := l.pos
	l.pos++
	var b strings.Builder
	for l.pos < len(l.src) {
		c := l.src[l.pos]
		l.pos++
		if c != closing {
			b.WriteByte(c)
			continue
		}
		if l.pos < len(l.src) && l.src[l.pos] == closing {
			b.WriteByte(c)
			l.pos++
			continue
		}
		return b.String(), nil
	}
	return "", syntax(start, "%q is not closed", l.src[start])
}

func (l *lexer) name() string {
	start := l.pos
	for l.pos < len(l.src) {
		r, n := utf8.DecodeRuneInString(l.src[l.pos:])
		first := l.pos == start
		if !unicode.IsLetter(r) && r != '_' && (first || !unicode.IsDigit(r) && r != '-' && r != '$' && r != '#' && r != '@') {
			break
		}
		// A hyphen inside a name is part of it only when a letter follows: a-b is a name the
		// service's clients use, a -1 and a-1 are subtractions.
		if r == '-' {
			next, _ := utf8.DecodeRuneInString(l.src[l.pos+n:])
			if !unicode.IsLetter(next) {
				break
			}
		}
		l.pos += n
	}
	return l.src[start:l.pos]
}

func (l *lexer) number() (token, error) {
	start := l.pos
	float := false
	for l.pos < len(l.src) {
		switch c := l.src[l.pos]; {
		case isDigit(c):
		case c == '.':
			float = true
		case (c == 'e' || c == 'E') && l.pos+1 < len(l.src):
			float = true
			if n := l.src[l.pos+1]; n == '+' || n == '-' {
				l.pos++
			}
		default:
			return numberToken(l.src[start:l.pos], float, start)
		}
		l.pos++
	}
	return numberToken(l.src[start:l.pos], float, start)
}

func numberToken(s string, float bool, at int) (token, error) {
	t := token{kind: number, text: s, at: at}
	var err error
	if float {
		t.value, err = strconv.ParseFloat(s, 64)
	} else {
		t.value, err = strconv.ParseInt(s, 10, 64)
	}
	if err != nil {
		return token{}, syntax(at, "%q is not a number", s)
	}
	return t, nil
}
