//go:build linux

package main

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// frame is what a screen showed from a time on.
type frame struct {
	at    time.Duration
	lines []string
}

// screen is as much of a terminal as the live view needs: text, new lines, "up n lines" and "clear to the end of the screen".
// It never scrolls. [ECMA-48 8.3.22 CUU, 8.3.39 ED]
type screen struct {
	lines []string // the last one has no end yet
	row   int      // the cursor's, when it is above the last line
	rest  string   // the beginning of a control sequence that is not whole yet
}

func (s *screen) copy() []string {
	if n := len(s.lines); n > 0 && s.lines[n-1] == "" {
		return slices.Clone(s.lines[:n-1])
	}
	return slices.Clone(s.lines)
}

func (s *screen) write(text []byte) {
	t := s.rest + string(text)
	s.rest = ""
	for t != "" {
		at := strings.IndexAny(t, "\x1b\n\r")
		if at < 0 {
			s.put(t)
			return
		}
		s.put(t[:at])
		t = t[at:]
		switch t[0] {
		case '\r':
			t = t[1:]
		case '\n':
			t = t[1:]
			s.row++
			s.grow()
		default:
			end := strings.IndexAny(t, "AJ")
			if end < 0 {
				s.rest = t
				return
			}
			if n, err := strconv.Atoi(strings.TrimPrefix(t[:end], "\x1b[")); err == nil && t[end] == 'A' {
				s.row = max(0, s.row-n)
			} else if t[end] == 'J' {
				s.lines = append(s.lines[:s.row], "")
			}
			t = t[end+1:]
		}
	}
}

func (s *screen) put(text string) {
	s.grow()
	s.lines[s.row] += text
}

func (s *screen) grow() {
	for len(s.lines) <= s.row {
		s.lines = append(s.lines, "")
	}
}
