package bicep

import (
	"fmt"
	"strings"
	"unicode"
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

// scan splits a source into tokens. Comments and #directives are dropped.
func scan(source string) ([]token, error) {
	s := scanner{rest: source, line: 1}
	for {
		t, err := s.next()
		if err != nil {
			return nil, err
		}
		s.tokens = append(s.tokens, t)
		if t.kind == end {
			return s.tokens, nil
		}
	}
}

type scanner struct {
	rest   string
	line   int
	tokens []token
}

func (s *scanner) fail(format string, args ...any) error {
	return fmt.Errorf("line %d: "+format, append([]any{s.line}, args...)...)
}

func (s *scanner) take(n int) string {
	taken := s.rest[:n]
	s.rest = s.rest[n:]
	s.line += strings.Count(taken, "\n")
	return taken
}

func (s *scanner) next() (token, error) {
	for s.rest != "" {
		switch c := s.rest[0]; {
		case c == ' ' || c == '\t' || c == '\r':
			s.take(1)
		case c == '#' || strings.HasPrefix(s.rest, "//"):
			s.take(upTo(s.rest, "\n"))
		case strings.HasPrefix(s.rest, "/*"):
			n := strings.Index(s.rest, "*/")
			if n < 0 {
				return token{}, s.fail("a comment does not end")
			}
			s.take(n + 2)
		case c == '\n':
			t := token{newline, "\n", s.line}
			s.take(1)
			return t, nil
		case strings.HasPrefix(s.rest, "'''"):
			return s.verbatim()
		case c == '\'':
			return s.quoted()
		case c == '_' || c < 0x80 && (unicode.IsLetter(rune(c)) || unicode.IsDigit(rune(c))):
			line := s.line
			n := strings.IndexFunc(s.rest, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
			if n < 0 {
				n = len(s.rest)
			}
			return token{word, s.take(n), line}, nil
		case strings.IndexByte("{}[]():,.=?!<>&|+-*/%@;", c) >= 0:
			return token{sign, s.take(1), s.line}, nil
		default:
			return token{}, s.fail("unexpected %q", c)
		}
	}
	return token{end, "", s.line}, nil
}

func upTo(s, stop string) int {
	if n := strings.Index(s, stop); n >= 0 {
		return n
	}
	return len(s)
}

func (s *scanner) verbatim() (token, error) {
	line := s.line
	s.take(3)
	n := strings.Index(s.rest, "'''")
	if n < 0 {
		return token{}, s.fail("a string that begins in line %d does not end", line)
	}
	t := token{text, s.rest[:n], line}
	s.take(n + 3)
	return t, nil
}

var escapes = map[byte]string{'n': "\n", 'r': "\r", 't': "\t", '\\': "\\", '\'': "'", '$': "$"}

func (s *scanner) quoted() (token, error) {
	t := token{text, "", s.line}
	var b strings.Builder
	depth := 0 // of ${…}
	for i := 1; i < len(s.rest); i++ {
		c := s.rest[i]
		switch {
		case c == '\n':
			return token{}, s.fail("a string does not end")
		case depth > 0 && c == '}':
			depth--
		case depth > 0 && c == '{':
			depth++
		case depth == 0 && strings.HasPrefix(s.rest[i:], "${"):
			depth++
			t.kind = interpolated
			b.WriteByte(c)
			i++
			c = '{'
		case depth == 0 && c == '\\':
			i++
			plain, known := escapes[s.rest[i]]
			if !known {
				return token{}, s.fail("unknown escape \\%c", s.rest[i])
			}
			b.WriteString(plain)
			continue
		case depth == 0 && c == '\'':
			t.text = b.String()
			s.take(i + 1)
			return t, nil
		}
		b.WriteByte(c)
	}
	return token{}, s.fail("a string does not end")
}
