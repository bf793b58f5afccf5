// Package terminal makes text that contains users' data safe to print: nothing of it acts on the
// reader's terminal, and a printed command can be pasted into a shell.
package terminal

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable makes a text with users' data safe to print: characters that a terminal would act on or
// not show are written as escapes (\n, \t, \x1b, \u202e), and so are bytes that are not UTF-8.
// Everything else stays as it is.
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

// Lines is like [Printable] for a text of several lines.
func Lines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = Printable(lines[i])
	}
	return strings.Join(lines, "\n")
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// Paste returns a command line that can be pasted into a shell: words are the program, the command
// and its flags, and operand is a user's data. The operand is quoted, and follows -- so that it is
// never taken for a flag.
func Paste(operand string, words ...string) string {
	return strings.Join(words, " ") + " -- " + Quote(operand)
}

// Quote returns a word that a POSIX shell reads as exactly this text. Characters that a terminal
// would act on when they are printed or pasted are written as escapes of printf. A NUL, which
// cannot be in an argument, is dropped.
func Quote(text string) string {
	if text != "" && strings.IndexFunc(text, special) < 0 {
		return text
	}
	if strings.IndexFunc(text, unprintable) < 0 && utf8.ValidString(text) {
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	// A command substitution removes the newlines at its end, so they are appended as they are.
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

// format returns a format of printf, between single quotes, that prints exactly this text.
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

// special reports whether a shell may read a character as something else than itself, as it does
// with ~ and = in some places.
func special(r rune) bool {
	plain := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:@%+,", r)
	return !plain
}
