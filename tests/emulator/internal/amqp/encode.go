package amqp

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// The Append functions write one value in its shortest encoding and return the extended slice.

// AppendNull appends null.
func AppendNull(b []byte) []byte { return append(b, codeNull) }

// AppendBool appends a boolean.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, codeTrue)
	}
	return append(b, codeFalse)
}

// AppendUbyte appends a ubyte.
func AppendUbyte(b []byte, v uint8) []byte { return append(b, codeUbyte, v) }

// AppendUint appends a uint.
func AppendUint(b []byte, v uint32) []byte {
	switch {
	case v == 0:
		return append(b, codeUint0)
	case v <= math.MaxUint8:
		return append(b, codeSmallUint, byte(v))
	default:
		return binary.BigEndian.AppendUint32(append(b, codeUint), v)
	}
}

// AppendUlong appends a ulong.
func AppendUlong(b []byte, v uint64) []byte {
	switch {
	case v == 0:
		return append(b, codeUlong0)
	case v <= math.MaxUint8:
		return append(b, codeSmallUlong, byte(v))
	default:
		return binary.BigEndian.AppendUint64(append(b, codeUlong), v)
	}
}

// AppendInt appends an int.
func AppendInt(b []byte, v int32) []byte {
	if v >= math.MinInt8 && v <= math.MaxInt8 {
		return append(b, codeSmallInt, byte(v))
	}
	return binary.BigEndian.AppendUint32(append(b, codeInt), uint32(v))
}

// AppendLong appends a long.
func AppendLong(b []byte, v int64) []byte {
	if v >= math.MinInt8 && v <= math.MaxInt8 {
		return append(b, codeSmallLong, byte(v))
	}
	return binary.BigEndian.AppendUint64(append(b, codeLong), uint64(v))
}

// AppendTimestamp appends a timestamp with millisecond precision.
func AppendTimestamp(b []byte, t time.Time) []byte {
	return binary.BigEndian.AppendUint64(append(b, codeTimestamp), uint64(timestampOf(t)))
}

// AppendUUID appends a uuid.
func AppendUUID(b []byte, u UUID) []byte { return append(append(b, codeUUID), u[:]...) }

// AppendString appends a string.
func AppendString(b []byte, s string) []byte {
	return append(appendVarHeader(b, codeStr8, codeStr32, len(s)), s...)
}

// AppendSymbol appends a symbol.
func AppendSymbol(b []byte, s Symbol) []byte {
	return append(appendVarHeader(b, codeSym8, codeSym32, len(s)), s...)
}

// AppendBinary appends binary data.
func AppendBinary(b, v []byte) []byte {
	return append(appendVarHeader(b, codeBin8, codeBin32, len(v)), v...)
}

func appendVarHeader(b []byte, short, long byte, n int) []byte {
	if n <= math.MaxUint8 {
		return append(b, short, byte(n))
	}
	return binary.BigEndian.AppendUint32(append(b, long), uint32(n))
}

// beginCompound starts a list or map whose size and count are not known yet and returns the
// offset endCompound needs.
func beginCompound(b []byte, code byte) ([]byte, int) {
	return append(b, code, 0, 0, 0, 0, 0, 0, 0, 0), len(b) + 1
}

// endCompound fills in the size (which includes the count field [AMQP-1.6.22]) and the count.
func endCompound(b []byte, at, count int) []byte {
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	binary.BigEndian.PutUint32(b[at+4:], uint32(count))
	return b
}

// beginComposite starts a described list with a small ulong descriptor.
func beginComposite(b []byte, descriptor byte) ([]byte, int) {
	return beginCompound(append(b, codeDescribed, codeSmallUlong, descriptor), codeList32)
}

// AppendAny appends v by its dynamic type. A Go type without an AMQP counterpart is an error.
func AppendAny(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return AppendNull(b), nil
	case bool:
		return AppendBool(b, v), nil
	case uint8:
		return AppendUbyte(b, v), nil
	case uint16:
		return binary.BigEndian.AppendUint16(append(b, codeUshort), v), nil
	case uint32:
		return AppendUint(b, v), nil
	case uint64:
		return AppendUlong(b, v), nil
	case int8:
		return append(b, codeByte, byte(v)), nil
	case int16:
		return binary.BigEndian.AppendUint16(append(b, codeShort), uint16(v)), nil
	case int32:
		return AppendInt(b, v), nil
	case int64:
		return AppendLong(b, v), nil
	case float32:
		return binary.BigEndian.AppendUint32(append(b, codeFloat), math.Float32bits(v)), nil
	case float64:
		return binary.BigEndian.AppendUint64(append(b, codeDouble), math.Float64bits(v)), nil
	case time.Time:
		return AppendTimestamp(b, v), nil
	case UUID:
		return AppendUUID(b, v), nil
	case string:
		return AppendString(b, v), nil
	case Symbol:
		return AppendSymbol(b, v), nil
	case []byte:
		return AppendBinary(b, v), nil
	case Raw:
		return append(append(b, v.Code), v.Bytes...), nil
	case Described:
		b, err := AppendAny(append(b, codeDescribed), v.Descriptor)
		if err != nil {
			return nil, err
		}
		return AppendAny(b, v.Value)
	case *Error:
		return appendError(b, v)
	default:
		return appendCollection(b, v)
	}
}

func appendCollection(b []byte, v any) ([]byte, error) {
	var err error
	switch v := v.(type) {
	case []any:
		if len(v) == 0 {
			return append(b, codeList0), nil
		}
		b, at := beginCompound(b, codeList32)
		for _, e := range v {
			if b, err = AppendAny(b, e); err != nil {
				return nil, err
			}
		}
		return endCompound(b, at, len(v)), nil
	case map[string]any:
		b, at := beginCompound(b, codeMap32)
		for k, e := range v {
			if b, err = AppendAny(AppendString(b, k), e); err != nil {
				return nil, err
			}
		}
		return endCompound(b, at, 2*len(v)), nil
	case map[Symbol]any:
		b, at := beginCompound(b, codeMap32)
		for k, e := range v {
			if b, err = AppendAny(AppendSymbol(b, k), e); err != nil {
				return nil, err
			}
		}
		return endCompound(b, at, 2*len(v)), nil
	case map[any]any:
		b, at := beginCompound(b, codeMap32)
		for k, e := range v {
			if b, err = AppendAny(b, k); err != nil {
				return nil, err
			}
			if b, err = AppendAny(b, e); err != nil {
				return nil, err
			}
		}
		return endCompound(b, at, 2*len(v)), nil
	case []int64:
		return appendArray(b, codeLong, len(v), func(b []byte, i int) []byte {
			return binary.BigEndian.AppendUint64(b, uint64(v[i]))
		}), nil
	case []time.Time:
		return appendArray(b, codeTimestamp, len(v), func(b []byte, i int) []byte {
			return binary.BigEndian.AppendUint64(b, uint64(timestampOf(v[i])))
		}), nil
	case []string:
		return appendArray(b, codeStr32, len(v), func(b []byte, i int) []byte {
			return append(binary.BigEndian.AppendUint32(b, uint32(len(v[i]))), v[i]...)
		}), nil
	case []Symbol:
		return appendArray(b, codeSym32, len(v), func(b []byte, i int) []byte {
			return append(binary.BigEndian.AppendUint32(b, uint32(len(v[i]))), v[i]...)
		}), nil
	case []UUID:
		return appendArray(b, codeUUID, len(v), func(b []byte, i int) []byte {
			return append(b, v[i][:]...)
		}), nil
	case Array:
		return appendMixedArray(b, v)
	default:
		return nil, fmt.Errorf("encode value: no AMQP type for %T", v)
	}
}

// appendArray writes one constructor and then the bare elements [AMQP-1.6.24].
func appendArray(b []byte, element byte, n int, appendElement func([]byte, int) []byte) []byte {
	b, at := beginCompound(b, codeArray32)
	b = append(b, element)
	for i := range n {
		b = appendElement(b, i)
	}
	return endCompound(b, at, n)
}

// appendMixedArray re-encodes an array that was decoded generically.
func appendMixedArray(b []byte, v Array) ([]byte, error) {
	if len(v) == 0 {
		return appendArray(b, codeNull, 0, nil), nil
	}
	switch v[0].(type) {
	case Symbol:
		return appendTyped[Symbol](b, v)
	case string:
		return appendTyped[string](b, v)
	case int64:
		return appendTyped[int64](b, v)
	case UUID:
		return appendTyped[UUID](b, v)
	case time.Time:
		return appendTyped[time.Time](b, v)
	default:
		return nil, fmt.Errorf("encode array: no support for elements of %T", v[0])
	}
}

func appendTyped[T any](b []byte, v Array) ([]byte, error) {
	typed := make([]T, len(v))
	for i, e := range v {
		t, ok := e.(T)
		if !ok {
			return nil, fmt.Errorf("encode array: element %d is %T, not %T", i, e, t)
		}
		typed[i] = t
	}
	return AppendAny(b, typed)
}
