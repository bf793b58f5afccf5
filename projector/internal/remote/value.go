package remote

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// readValue returns a value of canonical Extended JSON as the type that a projection in Go would
// use. A bare integer is an int64, any other bare number a double.
func readValue(n node) (any, error) {
	switch n.kind {
	case '"':
		return n.text, nil
	case 't', 'f':
		return n.kind == 't', nil
	case 'n':
		return nil, nil
	case '0':
		return readNumber(n.text)
	case '[':
		return readValues(n.items)
	}
	if len(n.names) > 0 && n.names[0] != "$ref" && strings.HasPrefix(n.names[0], "$") {
		return readTyped(n)
	}
	return readDocument(n)
}

func readNumber(literal string) (any, error) {
	if !strings.ContainsAny(literal, ".eE") {
		i, err := strconv.ParseInt(literal, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the integer %s does not fit into 64 bits", shorten(literal))
		}
		return i, nil
	}
	f, err := strconv.ParseFloat(literal, 64)
	if err != nil {
		return nil, fmt.Errorf("the number %s does not fit into a double", shorten(literal))
	}
	return f, nil
}

func readValues(items []node) (bson.A, error) {
	all := make(bson.A, len(items))
	for i, item := range items {
		var err error
		if all[i], err = readValue(item); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func readDocument(n node) (bson.D, error) {
	if n.kind != '{' {
		return nil, errors.New("a document is an object")
	}
	d := make(bson.D, len(n.items))
	for i, name := range n.names {
		switch {
		case strings.ContainsRune(name, 0):
			return nil, fmt.Errorf("the field name %q contains a NUL", name)
		case strings.HasPrefix(name, "$") && name != "$ref" && name != "$id" && name != "$db":
			return nil, fmt.Errorf("%q is not a field that a document can have here", name)
		}
		value, err := readValue(n.items[i])
		if err != nil {
			return nil, err
		}
		d[i] = bson.E{Key: name, Value: value}
	}
	return d, nil
}

// readRaw returns a document as BSON.
func readRaw(n node) (bson.Raw, error) {
	d, err := readDocument(n)
	if err != nil {
		return nil, err
	}
	return bson.Marshal(d)
}

// readTyped returns a value that names its type, such as {"$oid": "…"}.
func readTyped(n node) (any, error) {
	if len(n.names) == 1 && n.items[0].kind == '"' {
		text := n.items[0].text
		switch n.names[0] {
		case "$numberInt":
			if i, err := strconv.ParseInt(text, 10, 32); err == nil {
				return int32(i), nil
			}
		case "$numberLong":
			if i, err := strconv.ParseInt(text, 10, 64); err == nil {
				return i, nil
			}
		case "$oid":
			var id bson.ObjectID
			if size, err := hex.Decode(id[:], []byte(text[:min(len(text), 24)])); err == nil && size == len(id) && len(text) == 24 {
				return id, nil
			}
		}
	}
	text := make([]byte, 0, len(n.raw)+6)
	text = append(append(append(text, `{"v":`...), n.raw...), '}')
	var d bson.D
	const canonical = true
	if err := bson.UnmarshalExtJSON(text, canonical, &d); err != nil || len(d) != 1 {
		return nil, fmt.Errorf("%s is not canonical Extended JSON", shorten(string(n.raw)))
	}
	switch v := d[0].Value.(type) {
	case bson.D:
		return nil, fmt.Errorf("%s is not a type of Extended JSON", shorten(string(n.raw)))
	case bson.DateTime:
		if n.items[0].kind != '{' {
			return nil, fmt.Errorf("%s is not canonical Extended JSON: a date is {\"$date\":{\"$numberLong\":\"milliseconds\"}}", shorten(string(n.raw)))
		}
		return v.Time().UTC(), nil
	}
	return d[0].Value, nil
}

// appendValue appends a value as canonical Extended JSON.
func appendValue(dst []byte, value any) ([]byte, error) {
	switch v := value.(type) {
	case string:
		if isPlain(v) {
			return append(append(append(dst, '"'), v...), '"'), nil
		}
	case int32:
		return append(strconv.AppendInt(append(dst, `{"$numberInt":"`...), int64(v), 10), `"}`...), nil
	case int64:
		return append(strconv.AppendInt(append(dst, `{"$numberLong":"`...), v, 10), `"}`...), nil
	case int:
		return appendValue(dst, int64(v))
	case time.Time:
		value = bson.NewDateTimeFromTime(v)
	}
	const canonical, escapeHTML = true, false
	text, err := bson.MarshalExtJSON(bson.D{{Key: "v", Value: value}}, canonical, escapeHTML)
	if err != nil {
		return dst, err
	}
	return append(dst, text[len(`{"v":`):len(text)-1]...), nil
}

// isPlain reports whether JSON has a text as it is.
func isPlain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// maxReason bounds what the program's texts may add to a record or a log, in bytes.
const maxReason = 1024

func shorten(text string) string { return cut(text, 100) }

// cut returns text of at most limit bytes.
func cut(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len("…")], "") + "…"
}
