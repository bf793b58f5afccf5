package terminal

import (
	"strings"
	"unicode/utf8"
)

// Wrap breaks lines between words so that none is longer than columns. What follows is indented as
// the line is, and two columns more. A word that is longer, such as a path, stays whole. With
// columns 0, text is returned as it is.
func Wrap(text string, columns int) string {
	if columns <= 0 {
		return text
	}
	var lines []string
	for line := range strings.Lines(text) {
		line, ended := strings.CutSuffix(line, "\n")
		indent := strings.Repeat(" ", len(line)-len(strings.TrimLeft(line, " "))+2)
		for utf8.RuneCountInString(line) > columns {
			runes := []rune(line)
			at := strings.LastIndex(string(runes[:columns+1]), " ")
			if at < len(indent) {
				first := strings.Index(line[min(len(indent), len(line)):], " ")
				if first < 0 {
					break
				}
				at = len(indent) + first
			}
			lines = append(lines, line[:at]+"\n")
			line = indent + line[at+1:]
		}
		if ended {
			line += "\n"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "")
}

// Shorten returns of an identifier, such as a position or a message's id, what distinguishes it
// from others within a sentence: its beginning, which in a position is its time, and its end. A
// short one is returned whole.
func Shorten(id string) string {
	const begins, ends = 20, 6
	if len(id) <= begins+ends+1 {
		return id
	}
	return id[:begins] + "…" + id[len(id)-ends:]
}
