package redis

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// The protocol is RESP2: https://redis.io/docs/latest/develop/reference/protocol-spec/.

// Limits of a response, whose largest text is an object.
const (
	maxText  = MaxBytes
	maxItems = 1 << 20
	maxDepth = 4
)

var errProtocol = errors.New("the response is not one of Redis")

// serverError is an error that Redis returned in response to a command.
type serverError struct{ text string }

func (e *serverError) Error() string { return "Redis answered " + e.text }

// response is a value of the protocol: a text, which may be an error, a number (its digits), null,
// or a list.
type response struct {
	text   []byte
	items  []response
	null   bool
	failed bool
}

// command returns a command in the protocol's form: a list of texts.
func command(args []string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		b = fmt.Appendf(b, "$%d\r\n", len(arg))
		b = append(b, arg...)
		b = append(b, "\r\n"...)
	}
	return b
}

func readResponse(from *bufio.Reader, depth int) (r response, err error) {
	line, err := readLine(from)
	if err != nil {
		return r, err
	}
	switch kind, rest := line[0], line[1:]; kind {
	case '+', ':':
		r.text = rest
		return r, nil
	case '-':
		r.text, r.failed = rest, true
		return r, nil
	case '$':
		n, err := length(rest, maxText)
		if err != nil || n < 0 {
			r.null = n < 0
			return r, err
		}
		r.text = make([]byte, n+len("\r\n"))
		if _, err := io.ReadFull(from, r.text); err != nil {
			return r, err
		}
		if string(r.text[n:]) != "\r\n" {
			return r, errProtocol
		}
		r.text = r.text[:n:n]
		return r, nil
	case '*':
		n, err := length(rest, maxItems)
		if err != nil || n < 0 {
			r.null = n < 0
			return r, err
		}
		if depth == maxDepth {
			return r, errProtocol
		}
		for range n {
			item, err := readResponse(from, depth+1)
			if err != nil {
				return r, err
			}
			r.items = append(r.items, item)
		}
		return r, nil
	}
	return r, errProtocol
}

// readLine returns a line of at least one byte without its end.
func readLine(from *bufio.Reader) ([]byte, error) {
	line, err := from.ReadSlice('\n') // of at most the reader's buffer: only short texts are lines
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, errProtocol
	case err != nil:
		return nil, err
	case len(line) < 3 || line[len(line)-2] != '\r':
		return nil, errProtocol
	}
	return append([]byte(nil), line[:len(line)-2]...), nil
}

// length parses a length of at most limit; -1 means null.
func length(text []byte, limit int) (int, error) {
	n, err := strconv.Atoi(string(text))
	if err != nil || n < -1 || n > limit {
		return 0, errProtocol
	}
	return n, nil
}
