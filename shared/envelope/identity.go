package envelope

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// maxSessionID is Service Bus's limit for a SessionId and a PartitionKey, in UTF-16 code units.
const maxSessionID = 128

// hashedSession begins the id of a session if the aggregate's id is too long to be one.
const hashedSession = "sha256:"

// MessageID returns the identity of a change: hex SHA-256 of the stream, a newline, and the resume
// token's text. 64 characters, of the 128 that Service Bus allows.
func MessageID(stream, token string) string {
	var room [512]byte // for nearly all: it is made for every event
	sum := sha256.Sum256(append(append(append(room[:0], stream...), '\n'), token...))
	var text [2 * len(sum)]byte
	hex.Encode(text[:], sum[:])
	return string(text[:])
}

// InGeneration returns the MessageId of a change that is published again, made from its identity.
// It differs in each generation, so that the broker's duplicate detection does not drop what it saw
// in the generation before. Generation 0 is the first.
func InGeneration(id string, generation int64) string {
	if generation == 0 {
		return id
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%d", id, generation))
	return hex.EncodeToString(sum[:])
}

// SessionID returns the session that carries an aggregate: the id itself, or "sha256:" and the hex
// hash of an id that Service Bus would refuse as too long.
func SessionID(aggregate string) string {
	if len(aggregate) <= maxSessionID || utf16Len(aggregate) <= maxSessionID {
		return aggregate
	}
	sum := sha256.Sum256([]byte(aggregate))
	return hashedSession + hex.EncodeToString(sum[:])
}

func utf16Len(s string) int {
	n := 0
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return n
}

// TokenText returns a resume token as text: its _data string, which alone identifies the change
// (the _typeBits next to it only distinguish types of equal numbers); if it has none, the hex of
// the whole document.
func TokenText(token bson.Raw) string {
	if data, ok := token.Lookup("_data").StringValueOK(); ok {
		return data
	}
	return hex.EncodeToString(token)
}

// Sortable reports whether a token's text can serve as a position. MongoDB documents hex tokens as
// sortable, and such tokens begin with the type byte of a timestamp, 0x82. Azure DocumentDB's
// tokens are base64, and not sortable.
func Sortable(token string) bool {
	return strings.HasPrefix(token, "82") && len(token)%2 == 0 && strings.Trim(token, "0123456789ABCDEF") == ""
}

// TokenTime returns the cluster time in a sortable token or position: its seconds and its
// increment, in hex, follow the byte 82. It is zero for any other text.
func TokenTime(position string) (t bson.Timestamp) {
	if len(position) < 18 || !Sortable(position[:18]) {
		return t
	}
	both, err := strconv.ParseUint(position[2:18], 16, 64)
	if err != nil {
		return t
	}
	return bson.Timestamp{T: uint32(both >> 32), I: uint32(both)}
}

// TokenForm returns the version in a sortable token, or in a position that was made from one. It
// follows the cluster time: 2B02 is version 1, 2B04 is version 2. It is empty for any other text.
func TokenForm(position string) string {
	const at, zero = 18, "29"
	switch {
	case len(position) < at+len(zero) || !Sortable(position[:at]):
		return ""
	case position[at:at+len(zero)] == zero:
		return zero
	case len(position) < at+4, position[at:at+len(boundaryForm)] == boundaryForm:
		return ""
	}
	return position[at : at+4]
}

// Text returns a BSON value as the text of an aggregate id: strings as they are, ObjectIDs as 24
// hex digits, UUIDs in their canonical form, integers in decimal, dates in RFC 3339, everything
// else in canonical Extended JSON. Values that MongoDB takes for one _id have one text (see
// [Normal]), and others have different ones, except that a string may read like another value. ok
// is false for a value that cannot be an id: a missing one, null, an empty string, a string that is
// not UTF-8.
func Text(v bson.RawValue) (text string, ok bool) { return TextByType(Normal(v)) }

// TextByType returns the text of an aggregate id in streams that began before [Text] took equal
// values for one: a Decimal128, a double from 2^53 and a number inside a document have a text that
// shows their type.
func TextByType(v bson.RawValue) (text string, ok bool) {
	switch v.Type {
	case 0, bson.TypeNull, bson.TypeUndefined:
		return "", false
	case bson.TypeString:
		s, ok := v.StringValueOK()
		return s, ok && s != "" && utf8.ValidString(s)
	case bson.TypeObjectID:
		id, ok := v.ObjectIDOK()
		return id.Hex(), ok
	case bson.TypeInt32, bson.TypeInt64, bson.TypeDouble:
		if n, ok := Number(v); ok {
			return strconv.FormatInt(n, 10), true
		}
	case bson.TypeDateTime:
		ms, ok := v.DateTimeOK()
		return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano), ok
	case bson.TypeBinary:
		subtype, data, ok := v.BinaryOK()
		if ok && subtype == bson.TypeBinaryUUID && len(data) == 16 {
			return fmt.Sprintf("%x-%x-%x-%x-%x", data[0:4], data[4:6], data[6:8], data[8:10], data[10:16]), true
		}
	default: // everything else, and the values above that did not return
	}
	s := v.String()
	return s, s != "" && utf8.ValidString(s)
}

// Number returns a BSON value as the version of an event: a whole number of any numeric type but
// decimal. ok is false for anything else, such as "1", which is text.
func Number(v bson.RawValue) (n int64, ok bool) {
	switch v.Type {
	case bson.TypeInt32:
		n, ok := v.Int32OK()
		return int64(n), ok
	case bson.TypeInt64:
		return v.Int64OK()
	case bson.TypeDouble:
		f, ok := v.DoubleOK()
		if ok && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return int64(f), true
		}
	default: // text, a fraction, anything else
	}
	return 0, false
}

// Boundary returns the n-th position behind everything of cluster time t and before anything later.
// A write of the state as of t has it as its position, so that the guard recognises changes up to t
// as duplicates and applies later ones; n orders several writes at one t.
//
// In a token the byte behind the cluster time begins the token's version, which is a small number,
// so 0xFF is greater in every version of MongoDB, for events and high-water marks alike. Like
// tokens, boundaries are [Sortable], and [TokenTime] returns their cluster time; [TokenForm]
// returns "". Positions of a stream on Azure DocumentDB are counted, so such a stream has no
// boundary.
func Boundary(t bson.Timestamp, n uint32) string {
	return fmt.Sprintf("82%08X%08X%s%08X", t.T, t.I, boundaryForm, n)
}

// ParseBoundary returns the cluster time and the number in a [Boundary]. ok is false for any other
// position.
func ParseBoundary(position string) (t bson.Timestamp, n uint32, ok bool) {
	const number = 18 + len(boundaryForm)
	if len(position) != number+8 {
		return t, 0, false
	}
	parsed, err := strconv.ParseUint(position[number:], 16, 32)
	t, n = TokenTime(position), uint32(parsed)
	return t, n, err == nil && position == Boundary(t, n)
}

// boundaryForm stands in a boundary where a token has its version.
const boundaryForm = "FF"
