package projection

import (
	"strings"
	"unicode/utf8"
)

const hexDigits = "0123456789ABCDEF"

// emptyKey stands for the empty string, which cannot be a step of a field path. EscapeKey writes no
// other % alone: it writes % as %25.
const emptyKey = "%"

// EscapeKey turns any text into a single step of a field path, so that an update can use a key that
// comes from data: % becomes %25, a dot %2E, a leading dollar %24, NUL %00, bytes that are not
// UTF-8 their %XX, and the empty string a single %. [UnescapeKey] undoes it.
func EscapeKey(key string) string {
	if key == "" {
		return emptyKey
	}
	if key[0] != '$' && !strings.ContainsAny(key, "%.\x00") && utf8.ValidString(key) {
		return key
	}
	var b strings.Builder
	for i := 0; i < len(key); {
		r, size := utf8.DecodeRuneInString(key[i:])
		invalid := r == utf8.RuneError && size == 1
		if invalid || r == '%' || r == '.' || r == 0 || (r == '$' && i == 0) {
			b.WriteByte('%')
			b.WriteByte(hexDigits[key[i]>>4])
			b.WriteByte(hexDigits[key[i]&15])
		} else {
			b.WriteString(key[i : i+size])
		}
		i += size
	}
	return b.String()
}

// UnescapeKey undoes [EscapeKey]. A % that EscapeKey cannot have written stays.
func UnescapeKey(escaped string) string {
	if escaped == emptyKey {
		return ""
	}
	if !strings.Contains(escaped, "%") {
		return escaped
	}
	var b strings.Builder
	for i := 0; i < len(escaped); i++ {
		if escaped[i] == '%' && i+2 < len(escaped) {
			high, low := strings.IndexByte(hexDigits, escaped[i+1]), strings.IndexByte(hexDigits, escaped[i+2])
			if high >= 0 && low >= 0 {
				b.WriteByte(byte(high<<4 | low))
				i += 2
				continue
			}
		}
		b.WriteByte(escaped[i])
	}
	return b.String()
}
