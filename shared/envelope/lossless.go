package envelope

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// asJSON writes a valid body as canonical Extended JSON. ok is false where that would not be read as the same bytes again: a field that is
// named like one of Extended JSON's own ({"$numberInt": "5"}), text that is not UTF-8, a number that has no text of its own.
func asJSON(body bson.Raw) (text []byte, ok bool) {
	const canonical, escapeHTML = true, false
	text, err := bson.MarshalExtJSON(body, canonical, escapeHTML)
	if err != nil {
		return nil, false
	}
	if plain(body, false, 0) {
		return text, true
	}
	again, err := readExtJSON(text)
	return text, err == nil && bytes.Equal(again, body)
}

// mostLevels is how deep a plain document may be: readers of JSON have limits of their own.
const mostLevels = 100

// plain says that a valid document holds only what Extended JSON is known to give back, so that it need not be read again to see. It
// takes a small part of the time that reading takes, and nearly every document is plain.
func plain(document []byte, array bool, level int) bool {
	const head, end = 4, 1 // the length before and the NUL behind the elements
	if level > mostLevels || len(document) < head+end {
		return false
	}
	rest := document[head : len(document)-end]
	var index [20]byte
	for n := int64(0); len(rest) > 0; n++ {
		kind := bson.Type(rest[0])
		key, value, ok := bytes.Cut(rest[1:], []byte{0})
		if !ok || len(key) > 0 && key[0] == '$' || !utf8.Valid(key) {
			return false
		}
		if array && !bytes.Equal(key, strconv.AppendInt(index[:0], n, 10)) { // their names are not written
			return false
		}
		size, known := valueSize(kind, value)
		if !known || size > len(value) || !plainValue(kind, value[:size], level) {
			return false
		}
		rest = value[size:]
	}
	return true
}

// valueSize is how many bytes the value of a type takes that rest begins with; known is false for the types that are seldom: whoever
// reads them again sees.
func valueSize(kind bson.Type, rest []byte) (size int, known bool) {
	length := func(more int) (int, bool) {
		if len(rest) < 4 {
			return 0, false
		}
		n := int(int32(binary.LittleEndian.Uint32(rest))) + more
		return n, n >= 4
	}
	switch kind {
	case bson.TypeNull:
		return 0, true
	case bson.TypeBoolean:
		return 1, true
	case bson.TypeInt32:
		return 4, true
	case bson.TypeDouble, bson.TypeInt64, bson.TypeDateTime, bson.TypeTimestamp:
		return 8, true
	case bson.TypeObjectID:
		return 12, true
	case bson.TypeDecimal128:
		return 16, true
	case bson.TypeString:
		return length(4)
	case bson.TypeBinary:
		return length(4 + 1) // and its subtype
	case bson.TypeEmbeddedDocument, bson.TypeArray:
		return length(0)
	default:
		return 0, false
	}
}

// plainValue is [plain] of one value of a known type, by its bytes.
func plainValue(kind bson.Type, value []byte, level int) bool {
	switch kind {
	case bson.TypeEmbeddedDocument, bson.TypeArray:
		return plain(value, kind == bson.TypeArray, level+1)
	case bson.TypeString:
		const length, end = 4, 1
		return len(value) >= length+end && utf8.Valid(value[length:len(value)-end])
	case bson.TypeDouble:
		return !math.IsNaN(math.Float64frombits(binary.LittleEndian.Uint64(value)))
	case bson.TypeDecimal128:
		return plainDecimal(binary.LittleEndian.Uint64(value[8:]))
	case bson.TypeBinary:
		const subtype, old = 4, 2 // the old one has a length of its own inside, or has not
		return len(value) > subtype && value[subtype] != old
	case bson.TypeBoolean:
		return value[0] <= 1
	default:
		return true
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
