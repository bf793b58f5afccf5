package envelope

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// asJSON writes a valid body as canonical Extended JSON. ok is false where that would not be read as the same bytes again: a field that is
// named like one of Extended JSON's own ({"$numberInt": "5"}), text that is not UTF-8, a number that has no text of its own.
func asJSON(body bson.Raw) (text []byte, ok bool) {
	const canonical, escapeHTML = true, false
	text, err := bson.MarshalExtJSON(body, canonical, escapeHTML)
	if err != nil {
		return nil, false
	}
	if plain(bsoncore.Document(body), false, 0) {
		return text, true
	}
	again, err := readExtJSON(text)
	return text, err == nil && bytes.Equal(again, body)
}

// mostLevels is how deep a plain document may be: readers of JSON have limits of their own.
const mostLevels = 100

// plain says that a document holds only what Extended JSON is known to give back, so that it need not be read again to see. It takes
// a small part of the time that reading takes, and nearly every document is plain.
func plain(document bsoncore.Document, array bool, level int) bool {
	if level > mostLevels || len(document) < 5 {
		return false
	}
	rest := document[4 : len(document)-1]
	var index [20]byte
	for n := int64(0); len(rest) > 0; n++ {
		element, more, ok := bsoncore.ReadElement(rest)
		if !ok {
			return false
		}
		rest = more
		key := element.KeyBytes()
		if array && !bytes.Equal(key, strconv.AppendInt(index[:0], n, 10)) { // their names are not written
			return false
		}
		if len(key) > 0 && key[0] == '$' || !utf8.Valid(key) || !plainValue(element.Value(), level) {
			return false
		}
	}
	return true
}

func plainValue(v bsoncore.Value, level int) bool {
	switch v.Type {
	case bsoncore.TypeEmbeddedDocument:
		return plain(v.Data, false, level+1)
	case bsoncore.TypeArray:
		return plain(v.Data, true, level+1)
	case bsoncore.TypeString:
		const length, end = 4, 1
		return len(v.Data) >= length+end && utf8.Valid(v.Data[length:len(v.Data)-end])
	case bsoncore.TypeDouble:
		return len(v.Data) == 8 && !math.IsNaN(math.Float64frombits(binary.LittleEndian.Uint64(v.Data)))
	case bsoncore.TypeDecimal128:
		return len(v.Data) == 16 && plainDecimal(binary.LittleEndian.Uint64(v.Data[8:]))
	case bsoncore.TypeBoolean:
		return len(v.Data) == 1 && v.Data[0] <= 1
	case bsoncore.TypeBinary:
		const subtype, old = 4, 2 // the old one has a length of its own inside, or has not
		return len(v.Data) > subtype && v.Data[subtype] != old
	case bsoncore.TypeInt32, bsoncore.TypeInt64, bsoncore.TypeDateTime, bsoncore.TypeTimestamp, bsoncore.TypeObjectID, bsoncore.TypeNull:
		return true
	default: // seldom; whoever reads them again sees
		return false
	}
}

// plainDecimal says, by its upper half, that a decimal is finite and has a coefficient of at most 34 digits. Others have several forms.
func plainDecimal(high uint64) bool {
	const (
		otherForm   = 3 << 61 // infinities, NaN, and coefficients that are too large
		coefficient = 1<<49 - 1
		tooLarge    = 0x1ed09bead87c0 // the upper half of 10^34
	)
	return high&otherForm != otherForm && high&coefficient < tooLarge
}
