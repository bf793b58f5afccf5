package redis

import (
	"bufio"
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestResponses(t *testing.T) {
	t.Parallel()
	for text, expected := range map[string]response{
		"+OK\r\n":                       {text: []byte("OK")},
		":12\r\n":                       {text: []byte("12")},
		"-ERR no\r\n":                   {text: []byte("ERR no"), failed: true},
		"$-1\r\n":                       {null: true},
		"*-1\r\n":                       {null: true},
		"$0\r\n\r\n":                    {text: []byte{}},
		"$4\r\na\r\nb\r\n":              {text: []byte("a\r\nb")},
		"*2\r\n$1\r\n0\r\n*1\r\n:7\r\n": {items: []response{{text: []byte("0")}, {items: []response{{text: []byte("7")}}}}},
	} {
		r, err := readResponse(bufio.NewReader(bytes.NewBufferString(text)), 0)
		require.NoError(t, err, text)
		require.Equal(t, expected, r, text)
	}
	for _, text := range []string{"", "\n", "OK\r\n", "$1\r\nab\r\n", "$99999999999\r\n", "$-2\r\n", "*x\r\n", "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", "+OK\n"} {
		_, err := readResponse(bufio.NewReader(bytes.NewBufferString(text)), 0)
		require.Error(t, err, text)
	}
}

// No response of a server makes the reader panic.
func FuzzResponse(f *testing.F) {
	f.Add([]byte("*2\r\n$1\r\n0\r\n*1\r\n:7\r\n"))
	f.Fuzz(func(_ *testing.T, text []byte) {
		_, _ = readResponse(bufio.NewReader(bytes.NewReader(text)), 0)
	})
}
