package envelope

import (
	"bytes"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// AppendJSON appends a valid document as canonical Extended JSON. ok is false if that would not be
// read as the same bytes again; nothing usable is appended then.
func AppendJSON(dst []byte, document bson.Raw) (_ []byte, ok bool) {
	if appended, ok := appendJSON(dst, document); ok {
		return appended, true
	}
	text, ok := asJSON(document)
	return append(dst, text...), ok
}

// asJSON writes a valid body as canonical Extended JSON. ok is false where that would not be read
// as the same bytes again: a field that is named like one of Extended JSON's own ({"$numberInt":
// "5"}), text that is not UTF-8, a number that has no text of its own.
func asJSON(body bson.Raw) (text []byte, ok bool) {
	if text, ok = appendJSON(make([]byte, 0, len(body)*3/2+64), body); ok {
		return text, true
	}
	const canonical, escapeHTML = true, false
	text, err := bson.MarshalExtJSON(body, canonical, escapeHTML)
	if err != nil {
		return nil, false
	}
	again, err := readExtJSON(text)
	return text, err == nil && bytes.Equal(again, body)
}
