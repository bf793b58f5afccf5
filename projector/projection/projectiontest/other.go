package projectiontest

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// far is how far apart the variations of a number are.
const far = 1_000_003

// canVary reports whether [other] has another value for this one.
func canVary(value any) bool {
	switch v := value.(type) {
	case string, int32, int64, float64, bson.Decimal128, bson.DateTime, bson.ObjectID:
		return true
	case bson.Binary:
		return len(v.Data) >= 8
	}
	return false
}

// other returns the n-th other value of the same kind, always the same for the same value; one of a
// kind that has none stays.
func other(value any, n int) any {
	switch v := value.(type) {
	case string:
		return otherText(v, n)
	case int32:
		return int64(v) + int64(n)*far
	case int64:
		return v + int64(n)*far
	case float64:
		return v + float64(n)*far
	case bson.Decimal128:
		return otherDecimal(v, n)
	case bson.DateTime:
		return bson.NewDateTimeFromTime(v.Time().AddDate(0, 0, n))
	case bson.ObjectID:
		return bson.ObjectID(otherBytes(v[:], n))
	case bson.Binary:
		if canVary(v) {
			return bson.Binary{Subtype: v.Subtype, Data: otherBytes(v.Data, n)}
		}
	}
	return value
}

func otherDecimal(d bson.Decimal128, n int) bson.Decimal128 {
	digits, exponent, err := d.BigInt()
	if err != nil {
		return d // infinite, or no number
	}
	if varied, ok := bson.ParseDecimal128FromBigInt(digits.Add(digits, big.NewInt(int64(n)*far)), exponent); ok {
		return varied
	}
	return d
}

// otherBytes returns an identifier of the same length.
func otherBytes(id []byte, n int) []byte {
	varied := slices.Clone(id)
	end := varied[len(varied)-4:]
	binary.BigEndian.PutUint32(end, binary.BigEndian.Uint32(end)^uint32(n))
	return varied
}

var hexadecimal = regexp.MustCompile(`^[0-9a-fA-F-]{24,36}$`)

// otherText returns a text of the same kind: a projection may read it as a number, a time, an
// ObjectID or a UUID.
func otherText(text string, n int) string {
	if number, err := strconv.ParseInt(text, 10, 64); err == nil {
		return strconv.FormatInt(number+int64(n)*far, 10)
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.AddDate(0, 0, n).Format(layout)
		}
	}
	if hexadecimal.MatchString(text) {
		if end, err := strconv.ParseUint(text[len(text)-8:], 16, 32); err == nil {
			return text[:len(text)-8] + fmt.Sprintf("%08x", uint32(end)^uint32(n))
		}
	}
	return fmt.Sprintf("%s~%d", text, n)
}

func number(value any) (int64, bool) {
	switch n := value.(type) {
	case int32:
		return int64(n), true
	case int64:
		return n, true
	}
	return 0, false
}
