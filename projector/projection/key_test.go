package projection_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector/projection"
)

func TestEscapeKey(t *testing.T) {
	for key, escaped := range map[string]string{
		"Clear Invoice":                 "Clear Invoice",
		"SRM: Transfer Failed (E.Sys.)": "SRM: Transfer Failed (E%2ESys%2E)",
		"$set":                          "%24set",
		"a$b":                           "a$b",
		"100%":                          "100%25",
		"%2E":                           "%252E",
		"":                              "%",
		"%":                             "%25",
		"a\x00b":                        "a%00b",
		"\xff.":                         "%FF%2E",
		"Größe":                         "Größe",
		".":                             "%2E",
	} {
		require.Equal(t, escaped, projection.EscapeKey(key), "%q", key)
		require.Equal(t, key, projection.UnescapeKey(escaped), "%q", escaped)
	}
}

func TestUnescapeKeyKeepsStraySigns(t *testing.T) {
	for _, text := range []string{"50% off", "%zz", "a%", "%2", "%2e"} {
		require.Equal(t, text, projection.UnescapeKey(text))
	}
}

func FuzzEscapeKey(f *testing.F) {
	for _, seed := range []string{"", "%", "$", ".", "\x00", "a.b$c%d", "%%2E", "\xf0\x28"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		escaped := projection.EscapeKey(key)
		if back := projection.UnescapeKey(escaped); back != key {
			t.Fatalf("%q became %q and then %q", key, escaped, back)
		}
		if escaped == "" || escaped[0] == '$' || strings.ContainsAny(escaped, ".\x00") || !utf8.ValidString(escaped) {
			t.Fatalf("%q became %q, which is not a step of a field path", key, escaped)
		}
	})
}
