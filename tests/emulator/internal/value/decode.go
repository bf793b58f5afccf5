// Package value is the embedded MongoDB's view of BSON: decoding to and from
// bson.D without reflection, the server's comparison order, and dotted paths.
//
// Decoding is lossless for every BSON type except the deprecated binary subtype
// 2, and refuses documents nested deeper than MaxDepth or with lengths that do
// not add up. Decoded strings and binaries are copies.
package value

import (
	"bytes"
	"encoding/binary"
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
)

// MaxDepth is the deepest nesting a server accepts.
const MaxDepth = 200

// MaxStoredDepth is the deepest nesting of a document that is stored.
const MaxStoredDepth = 180

// TooDeep reports whether a document is nested too deeply to be stored.
func TooDeep(raw bson.Raw) bool {
	const level = 7 // the bytes of one, at least
	return len(raw) > level*MaxStoredDepth && deeper(raw, MaxStoredDepth)
}

func deeper(raw bson.Raw, than int) bool {
	elements, err := raw.Elements()
	if err != nil {
		return false
	}
	for _, e := range elements {
		v := e.Value()
		if v.Type != bson.TypeEmbeddedDocument && v.Type != bson.TypeArray {
			continue
		}
		if than <= 1 || deeper(bson.Raw(v.Value), than-1) {
			return true
		}
	}
	return false
}

// MaxDocument is the largest document a client may store, in bytes.
const MaxDocument = 16 << 20

var errBSON = mongoerr.New(22, "Invalid BSON")

// Decode turns a document into a bson.D whose values are the driver's own Go types.
func Decode(raw bson.Raw) (bson.D, error) {
	d, _, err := decodeDoc(raw, 0)
	return d, err
}

func document(b []byte) (body []byte, size int, err error) {
	if len(b) < 5 {
		return nil, 0, errBSON
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if n < 5 || n > int64(len(b)) || b[n-1] != 0 {
		return nil, 0, errBSON
	}
	return b[4 : n-1], int(n), nil
}

func decodeDoc(b []byte, depth int) (bson.D, int, error) {
	body, n, err := document(b)
	if err != nil {
		return nil, 0, err
	}
	if depth > MaxDepth {
		return nil, 0, mongoerr.New(mongoerr.Overflow, "BSONObj exceeded maximum nested object depth: %d", MaxDepth)
	}
	d := make(bson.D, 0, 8)
	for len(body) > 0 {
		t, key, rest, err := element(body)
		if err != nil {
			return nil, 0, err
		}
		v, used, err := decodeValue(t, rest, depth)
		if err != nil {
			return nil, 0, err
		}
		d = append(d, bson.E{Key: key, Value: v})
		body = rest[used:]
	}
	return d, n, nil
}

func decodeArray(b []byte, depth int) (bson.A, int, error) {
	body, n, err := document(b)
	if err != nil {
		return nil, 0, err
	}
	if depth > MaxDepth {
		return nil, 0, mongoerr.New(mongoerr.Overflow, "BSONObj exceeded maximum nested object depth: %d", MaxDepth)
	}
	a := bson.A{}
	for len(body) > 0 {
		i := bytes.IndexByte(body[1:], 0)
		if i < 0 {
			return nil, 0, errBSON
		}
		rest := body[i+2:]
		v, used, err := decodeValue(bson.Type(body[0]), rest, depth)
		if err != nil {
			return nil, 0, err
		}
		a = append(a, v)
		body = rest[used:]
	}
	return a, n, nil
}

func element(b []byte) (bson.Type, string, []byte, error) {
	i := bytes.IndexByte(b[1:], 0)
	if i < 0 {
		return 0, "", nil, errBSON
	}
	return bson.Type(b[0]), string(b[1 : 1+i]), b[i+2:], nil
}

func cstring(b []byte) (string, int, error) {
	i := bytes.IndexByte(b, 0)
	if i < 0 {
		return "", 0, errBSON
	}
	return string(b[:i]), i + 1, nil
}

func lstring(b []byte) (string, int, error) {
	if len(b) < 5 {
		return "", 0, errBSON
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if n < 1 || n > int64(len(b)-4) || b[4+n-1] != 0 {
		return "", 0, errBSON
	}
	return string(b[4 : 4+n-1]), int(4 + n), nil // not only UTF-8: real servers (6.0.27) take any bytes
}

// DecodeValue decodes one value of the given type and returns how many bytes it took.
func DecodeValue(t bson.Type, b []byte) (any, int, error) { return decodeValue(t, b, 0) }

func decodeValue(t bson.Type, b []byte, depth int) (any, int, error) {
	switch t {
	case bson.TypeEmbeddedDocument:
		return first(decodeDoc(b, depth+1))
	case bson.TypeArray:
		return first(decodeArray(b, depth+1))
	case bson.TypeString:
		return first(lstring(b))
	case bson.TypeInt32, bson.TypeInt64, bson.TypeDouble, bson.TypeDateTime, bson.TypeTimestamp, bson.TypeBoolean, bson.TypeObjectID, bson.TypeDecimal128:
		return decodeFixed(t, b)
	case bson.TypeNull:
		return nil, 0, nil
	case bson.TypeUndefined:
		return bson.Undefined{}, 0, nil
	case bson.TypeMinKey:
		return bson.MinKey{}, 0, nil
	case bson.TypeMaxKey:
		return bson.MaxKey{}, 0, nil
	case bson.TypeBinary:
		return decodeBinary(b)
	case bson.TypeRegex:
		p, n, err := cstring(b)
		if err != nil {
			return nil, 0, err
		}
		o, m, err := cstring(b[n:])
		return bson.Regex{Pattern: p, Options: o}, n + m, err
	case bson.TypeJavaScript:
		s, n, err := lstring(b)
		return bson.JavaScript(s), n, err
	case bson.TypeSymbol:
		s, n, err := lstring(b)
		return bson.Symbol(s), n, err
	case bson.TypeDBPointer:
		s, n, err := lstring(b)
		if err != nil || len(b) < n+12 {
			return nil, 0, errBSON
		}
		return bson.DBPointer{DB: s, Pointer: bson.ObjectID(b[n : n+12])}, n + 12, nil
	case bson.TypeCodeWithScope:
		return decodeScope(b, depth)
	default:
		return nil, 0, mongoerr.New(22, "Unrecognized BSON type %#x", byte(t))
	}
}

func first[T any](v T, n int, err error) (any, int, error) { return v, n, err }

var fixedSize = map[bson.Type]int{
	bson.TypeInt32: 4, bson.TypeInt64: 8, bson.TypeDouble: 8, bson.TypeDateTime: 8,
	bson.TypeTimestamp: 8, bson.TypeBoolean: 1, bson.TypeObjectID: 12, bson.TypeDecimal128: 16,
}

func decodeFixed(t bson.Type, b []byte) (any, int, error) {
	need := 8
	switch t {
	case bson.TypeInt32, bson.TypeBoolean, bson.TypeObjectID, bson.TypeDecimal128:
		need = fixedSize[t]
	default:
	}
	if len(b) < need {
		return nil, 0, errBSON
	}
	switch t {
	case bson.TypeInt32:
		return int32(binary.LittleEndian.Uint32(b)), 4, nil
	case bson.TypeInt64:
		return int64(binary.LittleEndian.Uint64(b)), 8, nil
	case bson.TypeDouble:
		return math.Float64frombits(binary.LittleEndian.Uint64(b)), 8, nil
	case bson.TypeDateTime:
		return bson.DateTime(binary.LittleEndian.Uint64(b)), 8, nil
	case bson.TypeTimestamp:
		return bson.Timestamp{T: binary.LittleEndian.Uint32(b[4:]), I: binary.LittleEndian.Uint32(b)}, 8, nil
	case bson.TypeObjectID:
		return bson.ObjectID(b[:12]), 12, nil
	case bson.TypeDecimal128:
		return bson.NewDecimal128(binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b)), 16, nil
	default: // boolean
		if b[0] > 1 {
			return nil, 0, errBSON
		}
		return b[0] == 1, 1, nil
	}
}

func decodeBinary(b []byte) (any, int, error) {
	if len(b) < 5 {
		return nil, 0, errBSON
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if n > int64(len(b)-5) {
		return nil, 0, errBSON
	}
	data := b[5 : 5+n]
	if b[4] == 2 { // the deprecated subtype repeats its length inside
		if n < 4 || int64(binary.LittleEndian.Uint32(data)) != n-4 {
			return nil, 0, errBSON
		}
		data = data[4:]
	}
	return bson.Binary{Subtype: b[4], Data: bytes.Clone(data)}, int(5 + n), nil
}

func decodeScope(b []byte, depth int) (any, int, error) {
	if len(b) < 4 {
		return nil, 0, errBSON
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if n < 14 || n > int64(len(b)) {
		return nil, 0, errBSON
	}
	s, used, err := lstring(b[4:n])
	if err != nil {
		return nil, 0, err
	}
	d, size, err := decodeDoc(b[4+used:n], depth+1)
	if err != nil || int64(4+used+size) != n {
		return nil, 0, errBSON
	}
	return bson.CodeWithScope{Code: bson.JavaScript(s), Scope: d}, int(n), nil
}
