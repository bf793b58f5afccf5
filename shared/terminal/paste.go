// Package terminal makes text that holds somebody's data safe for those who read it: nothing that is shown acts on their terminal,
// and a command that is printed for them can be pasted into a shell.
package terminal

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable is a text that may hold somebody's data, made safe to show: what a terminal would act on or not show is written as
// an escape (\n, \t, \x1b, \u202e), and so is what is no UTF-8. Everything else stays as it is.
func Printable(text string) string {
	if strings.IndexFunc(text, unprintable) < 0 && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case unprintable(r) && r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case unprintable(r) && r > 0xFFFF:
			fmt.Fprintf(&b, `\U%08x`, r)
		case unprintable(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(text[:size])
		}
		text = text[size:]
	}
	return b.String()
}

// Lines is [Printable] for a text of several lines.
func Lines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = Printable(lines[i])
	}
	return strings.Join(lines, "\n")
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// Paste is a command line that can be pasted into a shell: words are the program, the command and its flags, and operand
// is somebody's data. It is quoted, and stands behind -- so that it is never taken for a flag.
func Paste(operand string, words ...string) string {
	return strings.Join(words, " ") + " -- " + Quote(operand)
}

// Quote is a word for a POSIX shell that stands for exactly this text. What a terminal would act on while it is shown or pasted is
// written as an escape of printf; a NUL, which no program can be given, ends up as nothing.
func Quote(text string) string {
	if text != "" && strings.IndexFunc(text, special) < 0 {
		return text
	}
	if strings.IndexFunc(text, unprintable) < 0 && utf8.ValidString(text) {
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	// A command substitution takes the newlines at the end away: they are put behind it as they are.
	body := strings.TrimRight(text, "\n")
	quoted := ""
	if body != "" {
		quoted = `"$(printf '` + format(body) + `')"`
	}
	if newlines := text[len(body):]; newlines != "" {
		quoted += "'" + newlines + "'"
	}
	return quoted
}

// format is a format of printf, between single quotes, that prints exactly this text.
func format(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == '-' && b.Len() == 0: // no option of printf
			b.WriteString(`\055`)
		case r == '!': // which an interactive shell replaces even here
			b.WriteString(`\041`)
		case r == '%':
			b.WriteString("%%")
		case r == '\\':
			b.WriteString(`\\`)
		case r == '\'' || unprintable(r) || r == utf8.RuneError && size == 1:
			for _, octet := range []byte(text[:size]) {
				fmt.Fprintf(&b, `\%03o`, octet)
			}
		default:
			b.WriteString(text[:size])
		}
		text = text[size:]
	}
	return b.String()
}

// special says whether a shell may read a character as anything but itself. A ~ or a = does so in places.
func special(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:@%+,", r))
}
