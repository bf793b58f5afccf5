package workload

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

// maxLine is the longest line read, in bytes: MongoDB's limit of a document.
const maxLine = 16 << 20

// LineError is a line of an input file that cannot be an event.
type LineError struct {
	File    string
	Line    int // from 1
	Problem string
}

func (e *LineError) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Problem) }

// ReadFile reads a file of events, one JSON object a line; empty lines are skipped. See [Read].
func ReadFile(path string) (events []Event, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err // it names the file
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return Read(f, path)
}

// Read reads events. The first line that is invalid, or that contradicts the ones before it, ends
// it with a [LineError]: an aggregate's versions must rise by one from 1, since "nothing lost,
// nothing doubled, in order" is checked by them. name is the file's, for the error. A file without
// any event is an error as well.
func Read(r io.Reader, name string) ([]Event, error) {
	var events []Event
	next := map[string]int64{}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	n := 0
	for lines.Scan() {
		n++
		line := lines.Bytes()
		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")) // a byte order mark, as some editors write
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		e, problem := parseLine(line)
		if problem == "" {
			problem = follows(next, e)
		}
		if n == 1 && (bytes.HasPrefix(line, []byte("\xff\xfe")) || bytes.HasPrefix(line, []byte("\xfe\xff"))) {
			problem = "is UTF-16 text: save the file as UTF-8"
		}
		if problem != "" {
			return nil, &LineError{File: name, Line: n, Problem: problem}
		}
		events = append(events, e)
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, &LineError{File: name, Line: n + 1, Problem: fmt.Sprintf("the line is longer than %d bytes", maxLine)}
	} else if err != nil {
		return nil, err // it names the file
	}
	if len(events) == 0 {
		return nil, fmt.Errorf("read %s: it holds no event", name)
	}
	return events, nil
}

func parseLine(line []byte) (e Event, problem string) {
	if !utf8.Valid(line) {
		return e, "is not UTF-8 text: save the file as UTF-8"
	}
	if levels(line) > maxLevels {
		return e, fmt.Sprintf("is nested deeper than the %d levels that MongoDB stores", maxLevels)
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		return e, jsonProblem(err)
	}
	if rest := bytes.TrimSpace(line[d.InputOffset():]); len(rest) > 0 {
		return e, "something follows the JSON object: one event a line"
	}
	switch {
	case e.AggregateID == "":
		return e, `"aggregateId" is missing or empty, expected a string`
	case e.Type == "":
		return e, `"type" is missing or empty, expected a string`
	case e.OccurredAt == "":
		return e, `"occurredAt" is missing or empty, expected a time such as 2026-01-31T12:00:00Z`
	case e.Version < 1:
		return e, `"version" is missing or below 1: the versions of an aggregate are 1, 2, 3 and so on`
	}
	if _, err := time.Parse(time.RFC3339Nano, e.OccurredAt); err != nil {
		return e, fmt.Sprintf(`"occurredAt" is %q, not a time such as 2026-01-31T12:00:00Z`, e.OccurredAt)
	}
	return e, ""
}

// anEvent describes the form of a line, for errors.
const anEvent = "an object {aggregateId, version, type, occurredAt, data}"

// jsonProblem rewrites an error of encoding/json without Go's terms.
func jsonProblem(err error) string {
	var wrongType *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrongType) && wrongType.Field != "":
		return fmt.Sprintf("%q is a JSON %s, expected %s", wrongType.Field, wrongType.Value, kindWord(wrongType.Type.Kind().String()))
	case errors.As(err, &wrongType):
		return fmt.Sprintf("is a JSON %s, expected %s", wrongType.Value, anEvent)
	case errors.As(err, &syntax):
		return fmt.Sprintf("is not JSON (%v at byte %d), expected %s", syntax, syntax.Offset, anEvent)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "is not JSON: it ends too early; an event stands in one line, expected " + anEvent
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return fmt.Sprintf("has the unknown field %s, expected %s", name, anEvent)
	}
	return err.Error()
}

// maxLevels is MongoDB's limit for the nesting of a document.
const maxLevels = 180

// levels returns how deeply the objects and lists of a line are nested, even if the line is
// invalid.
func levels(line []byte) (deepest int) {
	depth, quoted := 0, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}', c == ']':
			depth--
		}
	}
	return deepest
}

func kindWord(kind string) string {
	if kind == "int64" {
		return "a whole number of at most 64 bits"
	}
	return "a " + kind
}

// follows checks that an event is the next one of its aggregate, and records that it was seen.
func follows(next map[string]int64, e Event) (problem string) {
	want := next[e.AggregateID]
	if want == 0 {
		want = 1
	}
	if e.Version != want {
		return fmt.Sprintf("version %d of aggregate %q where version %d must follow", e.Version, e.AggregateID, want)
	}
	next[e.AggregateID] = want + 1
	return ""
}
