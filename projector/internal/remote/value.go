package remote

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// readValue returns a value of canonical Extended JSON as the type that a projection in Go would
// use. A bare integer is an int64, any other bare number a double.
func readValue(n node) (any, error) {
	switch n.kind {
	case '"':
		return strings.Clone(n.text), nil // a part would keep the whole answer in memory
	case 't', 'f':
		return n.kind == 't', nil
	case 'n':
		return nil, nil
	case '0':
		return readNumber(n.text)
	case '[':
		return readValues(n.items)
	}
	if n.typed() {
		return readTyped(n)
	}
	return readDocument(n)
}

// typed reports whether an object is a value that names its type.
func (n node) typed() bool {
	return len(n.items) > 0 && strings.HasPrefix(n.items[0].name, "$") && n.items[0].name != "$ref"
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
	d := make(bson.D, len(n.items))
	for i, item := range n.items {
		if err := item.checkName(); err != nil {
			return nil, err
		}
		value, err := readValue(item)
		if err != nil {
			return nil, err
		}
		d[i] = bson.E{Key: item.name, Value: value}
	}
	return d, nil
}

// checkName returns why a document cannot have the name of a member.
func (n node) checkName() error {
	switch {
	case strings.IndexByte(n.name, 0) >= 0:
		return fmt.Errorf("the field name %q contains a NUL", n.name)
	case strings.HasPrefix(n.name, "$") && n.name != "$ref" && n.name != "$id" && n.name != "$db":
		return fmt.Errorf("%q is not a field that a document can have here", n.name)
	}
	return nil
}

// readRaw returns a document as BSON.
func readRaw(n node) (bson.Raw, error) {
	if n.kind != '{' {
		return nil, errors.New("a document is an object")
	}
	start, dst := bsoncore.AppendDocumentStart(make([]byte, 0, len(n.raw)))
	dst, err := appendFields(dst, n.items)
	if err != nil {
		return nil, err
	}
	return bsoncore.AppendDocumentEnd(dst, start)
}

// appendFields appends the members of an object as elements of BSON.
func appendFields(dst []byte, items []node) (_ []byte, err error) {
	for _, item := range items {
		if err = item.checkName(); err != nil {
			return nil, err
		}
		if dst, err = appendElement(dst, item.name, item); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// appendElement appends an element of BSON with the value that readValue returns for n.
func appendElement(dst []byte, name string, n node) (_ []byte, err error) {
	switch {
	case n.kind == '[':
		start, dst := bsoncore.AppendArrayElementStart(dst, name)
		for i, item := range n.items {
			if dst, err = appendElement(dst, strconv.Itoa(i), item); err != nil {
				return nil, err
			}
		}
		return bsoncore.AppendArrayEnd(dst, start)
	case n.kind == '{' && !n.typed():
		start, dst := bsoncore.AppendDocumentElementStart(dst, name)
		if dst, err = appendFields(dst, n.items); err != nil {
			return nil, err
		}
		return bsoncore.AppendDocumentEnd(dst, start)
	}
	value, err := readValue(n)
	if err != nil {
		return nil, err
	}
	switch v := value.(type) {
	case string:
		return bsoncore.AppendStringElement(dst, name, v), nil
	case int64:
		return bsoncore.AppendInt64Element(dst, name, v), nil
	case int32:
		return bsoncore.AppendInt32Element(dst, name, v), nil
	case bool:
		return bsoncore.AppendBooleanElement(dst, name, v), nil
	case nil:
		return bsoncore.AppendNullElement(dst, name), nil
	}
	kind, data, err := bson.MarshalValue(value)
	if err != nil {
		return nil, err
	}
	return bsoncore.AppendValueElement(dst, name, bsoncore.Value{Type: bsoncore.Type(kind), Data: data}), nil
}

// readTyped returns a value that names its type, such as {"$oid": "…"}.
func readTyped(n node) (any, error) {
	switch first := n.items[0]; {
	case len(n.items) == 1 && first.kind == '{' && first.name == "$date":
		if inner := first.items; len(inner) == 1 && inner[0].name == "$numberLong" && inner[0].kind == '"' {
			if ms, err := strconv.ParseInt(inner[0].text, 10, 64); err == nil {
				return bson.DateTime(ms).Time().UTC(), nil
			}
		}
	case len(n.items) == 1 && first.kind == '"':
		text := first.text
		switch first.name {
		case "$numberInt":
			if i, err := strconv.ParseInt(text, 10, 32); err == nil {
				return int32(i), nil
			}
		case "$numberLong":
			if i, err := strconv.ParseInt(text, 10, 64); err == nil {
				return i, nil
			}
		case "$oid":
			if id, err := bson.ObjectIDFromHex(text); err == nil {
				return id, nil
			}
		}
	}
	text := make([]byte, 0, len(n.raw)+6)
	text = append(append(append(text, `{"v":`...), n.raw...), '}')
	var d bson.D
	const canonical = true
	if err := bson.UnmarshalExtJSON(text, canonical, &d); err != nil || len(d) != 1 {
		return nil, fmt.Errorf("%s is not canonical Extended JSON", shorten(n.raw))
	}
	switch v := d[0].Value.(type) {
	case bson.D:
		return nil, fmt.Errorf("%s is not a type of Extended JSON", shorten(n.raw))
	case bson.DateTime:
		if n.items[0].kind != '{' {
			return nil, fmt.Errorf("%s is not canonical Extended JSON: a date is {\"$date\":{\"$numberLong\":\"milliseconds\"}}", shorten(n.raw))
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
	case bool:
		return strconv.AppendBool(dst, v), nil
	case nil:
		return append(dst, "null"...), nil
	case bson.ObjectID:
		return append(hex.AppendEncode(append(dst, `{"$oid":"`...), v[:]), `"}`...), nil
	case time.Time:
		return append(strconv.AppendInt(append(dst, `{"$date":{"$numberLong":"`...), v.UnixMilli(), 10), `"}}`...), nil
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
