//go:build linux

package pty

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Screen emulates the part of a terminal that the programs need: text, new lines, "up n lines" and
// "clear to the end of the screen". A line that is wider than the screen continues in the next row,
// and the cursor does not leave the visible rows. The zero value has no bounds. [ECMA-48 8.3.22
// CUU, 8.3.39 ED]
type Screen struct {
	Columns, Rows int // 0: without bounds

	lines []string // including those that have scrolled away; the last one is not terminated yet
	row   int      // the cursor's
	rest  string   // the beginning of an incomplete control sequence or character
}

// Lines returns everything that was shown and not cleared, including what has scrolled away.
func (s *Screen) Lines() []string {
	if n := len(s.lines); n > 0 && s.lines[n-1] == "" {
		return slices.Clone(s.lines[:n-1])
	}
	return slices.Clone(s.lines)
}

// Write shows a text. It never fails.
func (s *Screen) Write(text []byte) (int, error) {
	t := s.rest + string(text)
	s.rest = ""
	for t != "" {
		switch at := strings.IndexAny(t, "\x1b\n\r"); {
		case at < 0:
			whole := len(t)
			for whole > 0 && len(t)-whole < utf8.UTFMax && !utf8.ValidString(t[:whole]) {
				whole--
			}
			s.put(t[:whole])
			s.rest = t[whole:]
			return len(text), nil
		case at > 0:
			s.put(t[:at])
			t = t[at:]
		case t[0] == '\r':
			t = t[1:]
		case t[0] == '\n':
			t = t[1:]
			s.row++
			s.grow()
		default:
			end := strings.IndexAny(t, "AJ")
			if end < 0 {
				s.rest = t
				return len(text), nil
			}
			if n, err := strconv.Atoi(strings.TrimPrefix(t[:end], "\x1b[")); err == nil && t[end] == 'A' {
				s.row = max(s.top(), s.row-n)
			} else if t[end] == 'J' {
				s.lines = append(s.lines[:s.row], "")
			}
			t = t[end+1:]
		}
	}
	return len(text), nil
}

// top returns the first visible row.
func (s *Screen) top() int {
	if s.Rows == 0 {
		return 0
	}
	return max(0, len(s.lines)-s.Rows)
}

func (s *Screen) put(text string) {
	s.grow()
	for _, r := range text {
		if s.Columns > 0 && utf8.RuneCountInString(s.lines[s.row]) == s.Columns {
			s.row++
			s.grow()
		}
		s.lines[s.row] += string(r)
	}
}

func (s *Screen) grow() {
	for len(s.lines) <= s.row {
		s.lines = append(s.lines, "")
	}
}
