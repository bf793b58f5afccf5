package envelope

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The driver writes Extended JSON by reflection, a value at a time, and takes some ten times as
// long as the rest of a message. What nearly every document consists of is written here in one pass
// over its bytes, exactly as the driver writes it: a test compares the two.

// mostLevels is how deep a document may be that is written here: readers of JSON have limits of
// their own.
const mostLevels = 100

// appendDocument appends a valid document or, between brackets, an array, as canonical Extended
// JSON. ok is false if it holds anything that Extended JSON might not reproduce byte for byte, or
// that is too rare to be written here; the appended bytes are then useless.
func appendDocument(dst, document []byte, opening, closing byte, level int) (_ []byte, ok bool) {
	const head, end = 4, 1 // the length before and the NUL behind the elements
	if level > mostLevels || len(document) < head+end {
		return dst, false
	}
	dst = append(dst, opening)
	var index [20]byte
	rest := document[head : len(document)-end]
	for n := int64(0); len(rest) > 0; n++ {
		kind := bson.Type(rest[0])
		key, value, ok := bytes.Cut(rest[1:], []byte{0})
		if !ok {
			return dst, false
		}
		if n > 0 {
			dst = append(dst, ',')
		}
		if opening == '[' {
			if !bytes.Equal(key, strconv.AppendInt(index[:0], n, 10)) { // the names of an array's elements are not written
				return dst, false
			}
		} else {
			if len(key) > 0 && key[0] == '$' {
				return dst, false
			}
			if dst, ok = appendText(dst, key); !ok {
				return dst, false
			}
			dst = append(dst, ':')
		}
		size, known := valueSize(kind, value)
		if !known || size > len(value) {
			return dst, false
		}
		if dst, ok = appendValue(dst, kind, value[:size], level); !ok {
			return dst, false
		}
		rest = value[size:]
	}
	return append(dst, closing), true
}

// valueSize returns the number of bytes of the value at the beginning of rest. known is false for
// rare types, whose size is found when they are read again.
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

// appendValue appends a value of a type whose size is known, from its bytes.
func appendValue(dst []byte, kind bson.Type, value []byte, level int) (_ []byte, ok bool) {
	number := binary.LittleEndian
	switch kind {
	case bson.TypeEmbeddedDocument:
		return appendDocument(dst, value, '{', '}', level+1)
	case bson.TypeArray:
		return appendDocument(dst, value, '[', ']', level+1)
	case bson.TypeString:
		const length, end = 4, 1
		if len(value) < length+end {
			return dst, false
		}
		return appendText(dst, value[length:len(value)-end])
	case bson.TypeInt32:
		dst = append(dst, `{"$numberInt":"`...)
		dst = strconv.AppendInt(dst, int64(int32(number.Uint32(value))), 10)
	case bson.TypeInt64:
		dst = append(dst, `{"$numberLong":"`...)
		dst = strconv.AppendInt(dst, int64(number.Uint64(value)), 10)
	case bson.TypeDouble:
		f := math.Float64frombits(number.Uint64(value))
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return dst, false
		}
		dst = append(dst, `{"$numberDouble":"`...)
		begin := len(dst)
		if dst = strconv.AppendFloat(dst, f, 'G', -1, 64); !bytes.ContainsAny(dst[begin:], "E.") {
			dst = append(dst, ".0"...)
		}
	case bson.TypeDecimal128:
		high, low := number.Uint64(value[8:]), number.Uint64(value)
		if !plainDecimal(high) {
			return dst, false
		}
		dst = append(dst, `{"$numberDecimal":"`...)
		dst = append(dst, bson.NewDecimal128(high, low).String()...)
	case bson.TypeObjectID:
		dst = append(dst, `{"$oid":"`...)
		dst = hex.AppendEncode(dst, value)
	default:
		return appendOther(dst, kind, value)
	}
	return append(dst, `"}`...), true
}

// appendOther is like appendValue of the types that are no number, text or id.
func appendOther(dst []byte, kind bson.Type, value []byte) (_ []byte, ok bool) {
	number := binary.LittleEndian
	switch kind {
	case bson.TypeNull:
		return append(dst, "null"...), true
	case bson.TypeBoolean:
		return strconv.AppendBool(dst, value[0] == 1), value[0] <= 1
	case bson.TypeDateTime:
		dst = append(dst, `{"$date":{"$numberLong":"`...)
		dst = strconv.AppendInt(dst, int64(number.Uint64(value)), 10)
		return append(dst, `"}}`...), true
	case bson.TypeTimestamp:
		dst = append(dst, `{"$timestamp":{"t":`...)
		dst = strconv.AppendUint(dst, uint64(number.Uint32(value[4:])), 10)
		dst = append(dst, `,"i":`...)
		dst = strconv.AppendUint(dst, uint64(number.Uint32(value)), 10)
		return append(dst, `}}`...), true
	case bson.TypeBinary:
		const length, old = 4, 2 // the old subtype has a length of its own inside, or has not
		if len(value) <= length || value[length] == old {
			return dst, false
		}
		dst = append(dst, `{"$binary":{"base64":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, value[length+1:])
		dst = append(dst, `","subType":"`...)
		dst = hex.AppendEncode(dst, value[length:length+1])
		return append(dst, `"}}`...), true
	default:
		return dst, false
	}
}

// appendText appends a text between quotes; ok is false where it is not UTF-8.
func appendText(dst, text []byte) (_ []byte, ok bool) {
	const hexDigits = "0123456789abcdef"
	dst = append(dst, '"')
	begin := 0 // of what need not be escaped and is not written yet
	for i := 0; i < len(text); {
		c := text[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRune(text[i:])
			switch {
			case r == utf8.RuneError && size == 1:
				return dst, false
			case r == '\u2028', r == '\u2029': // ends a line in JavaScript
				dst = append(append(dst, text[begin:i]...), `\u202`...)
				dst = append(dst, hexDigits[r&0xf])
				begin = i + size
			}
			i += size
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, text[begin:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
		}
		i++
		begin = i
	}
	return append(append(dst, text[begin:]...), '"'), true
}

// plainDecimal reports, from its upper half, whether a decimal is finite and has a coefficient of
// at most 34 digits. Other decimals have several forms.
func plainDecimal(high uint64) bool {
	const (
		otherForm   = 3 << 61 // infinities, NaN, and coefficients that are too large
		coefficient = 1<<49 - 1
		tooLarge    = 0x1ed09bead87c0 // the upper half of 10^34
	)
	return high&otherForm != otherForm && high&coefficient < tooLarge
}

// AppendJSON appends a valid document as canonical Extended JSON. ok is false if that would not be
// read as the same bytes again: a field that is named like one of Extended JSON's own
// ({"$numberInt": "5"}), text that is not UTF-8, a number that has no text of its own. Nothing
// usable is appended then.
func AppendJSON(dst []byte, document bson.Raw) (_ []byte, ok bool) {
	if appended, ok := appendDocument(dst, document, '{', '}', 0); ok {
		return appended, true
	}
	const canonical, escapeHTML = true, false
	text, err := bson.MarshalExtJSON(document, canonical, escapeHTML)
	if err != nil {
		return dst, false
	}
	again, err := readExtJSON(text)
	return append(dst, text...), err == nil && bytes.Equal(again, document)
}
