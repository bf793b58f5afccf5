package value

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Encode is like AppendDoc into a fresh buffer.
func Encode(d bson.D) bson.Raw { return AppendDoc(make([]byte, 0, 256), d) }

// AppendDoc appends d as BSON. In addition to the types that Decode produces it accepts those of
// replies: int, time.Time, bson.Raw, []bson.Raw, bson.RawValue, []bson.D, []string and []int64. Any
// other type is a mistake in this module and panics.
func AppendDoc(dst []byte, d bson.D) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	for _, e := range d {
		dst = AppendElement(dst, e.Key, e.Value)
	}
	return finish(dst, start)
}

func finish(dst []byte, start int) []byte {
	dst = append(dst, 0)
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start))
	return dst
}

// AppendElement appends one named value.
func AppendElement(dst []byte, key string, v any) []byte {
	at := len(dst)
	dst = append(dst, 0)
	dst = append(dst, key...)
	dst = append(dst, 0)
	dst, t := AppendValue(dst, v)
	dst[at] = byte(t)
	return dst
}

// AppendValue appends the bare value and returns its type.
func AppendValue(dst []byte, v any) ([]byte, bson.Type) {
	switch t := v.(type) {
	case nil:
		return dst, bson.TypeNull
	case bson.Null:
		return dst, bson.TypeNull
	case bson.D:
		return AppendDoc(dst, t), bson.TypeEmbeddedDocument
	case bson.A:
		return appendSlice(dst, t), bson.TypeArray
	case string:
		return appendString(dst, t), bson.TypeString
	case int32:
		return binary.LittleEndian.AppendUint32(dst, uint32(t)), bson.TypeInt32
	case int:
		return binary.LittleEndian.AppendUint32(dst, uint32(int32(t))), bson.TypeInt32
	case int64:
		return binary.LittleEndian.AppendUint64(dst, uint64(t)), bson.TypeInt64
	case float64:
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(t)), bson.TypeDouble
	case bool:
		if t {
			return append(dst, 1), bson.TypeBoolean
		}
		return append(dst, 0), bson.TypeBoolean
	case bson.ObjectID:
		return append(dst, t[:]...), bson.TypeObjectID
	case bson.DateTime:
		return binary.LittleEndian.AppendUint64(dst, uint64(t)), bson.TypeDateTime
	case time.Time:
		return binary.LittleEndian.AppendUint64(dst, uint64(t.UnixMilli())), bson.TypeDateTime
	case bson.Timestamp:
		return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(dst, t.I), t.T), bson.TypeTimestamp
	case bson.Raw:
		return append(dst, t...), bson.TypeEmbeddedDocument
	case bson.RawValue:
		return append(dst, t.Value...), t.Type
	case []bson.Raw:
		return appendSlice(dst, t), bson.TypeArray
	case []bson.D:
		return appendSlice(dst, t), bson.TypeArray
	case []string:
		return appendSlice(dst, t), bson.TypeArray
	case []int64:
		return appendSlice(dst, t), bson.TypeArray
	default:
		return appendRare(dst, v)
	}
}

func appendRare(dst []byte, v any) ([]byte, bson.Type) {
	switch t := v.(type) {
	case bson.Binary:
		if t.Subtype == 2 {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(len(t.Data)+4))
			dst = append(dst, 2)
		}
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(t.Data)))
		if t.Subtype != 2 {
			dst = append(dst, t.Subtype)
		}
		return append(dst, t.Data...), bson.TypeBinary
	case bson.Decimal128:
		h, l := t.GetBytes()
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(dst, l), h), bson.TypeDecimal128
	case bson.Regex:
		dst = append(append(dst, t.Pattern...), 0)
		return append(append(dst, t.Options...), 0), bson.TypeRegex
	case bson.Undefined:
		return dst, bson.TypeUndefined
	case bson.MinKey:
		return dst, bson.TypeMinKey
	case bson.MaxKey:
		return dst, bson.TypeMaxKey
	case bson.JavaScript:
		return appendString(dst, string(t)), bson.TypeJavaScript
	case bson.Symbol:
		return appendString(dst, string(t)), bson.TypeSymbol
	case bson.DBPointer:
		return append(appendString(dst, t.DB), t.Pointer[:]...), bson.TypeDBPointer
	case bson.CodeWithScope:
		start := len(dst)
		dst = appendString(append(dst, 0, 0, 0, 0), string(t.Code))
		scope, _ := t.Scope.(bson.D)
		dst = AppendDoc(dst, scope)
		binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start))
		return dst, bson.TypeCodeWithScope
	default:
		panic(fmt.Sprintf("value: no BSON form for %T", v))
	}
}

func appendString(dst []byte, s string) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(s)+1))
	return append(append(dst, s...), 0)
}

func appendSlice[T any](dst []byte, items []T) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	for i, item := range items {
		at := len(dst)
		dst = append(dst, 0)
		dst = append(strconv.AppendInt(dst, int64(i), 10), 0)
		var t bson.Type
		dst, t = AppendValue(dst, item)
		dst[at] = byte(t)
	}
	return finish(dst, start)
}
