package amqp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrMalformed is wrapped by every decoding error.
var ErrMalformed = errors.New("malformed AMQP data")

// maxDepth bounds nesting, so that hostile input cannot exhaust the stack.
const maxDepth = 32

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// Reader decodes values from a byte slice. It never reads past its slice and it never
// allocates more than a small multiple of the bytes it was given. Binary values alias the
// slice; strings are copied.
type Reader struct {
	buf   []byte
	depth int
}

// NewReader returns a reader of b.
func NewReader(b []byte) *Reader { return &Reader{buf: b} }

// Len returns the number of bytes not read yet.
func (r *Reader) Len() int { return len(r.buf) }

func (r *Reader) next(n int) ([]byte, error) {
	if n < 0 || n > len(r.buf) {
		return nil, malformed("want %d bytes, have %d", n, len(r.buf))
	}
	b := r.buf[:n:n]
	r.buf = r.buf[n:]
	return b, nil
}

func (r *Reader) code() (byte, error) {
	b, err := r.next(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

// fixedWidth returns the number of bytes that a value of the code occupies after the code, or -1 if
// the code is of a variable or compound type or unknown. The upper nibble determines it [AMQP-1.2].
func fixedWidth(code byte) int {
	switch code >> 4 {
	case 0x4:
		return 0
	case 0x5:
		return 1
	case 0x6:
		return 2
	case 0x7:
		return 4
	case 0x8:
		return 8
	case 0x9:
		return 16
	default:
		return -1
	}
}

// Skip passes over one value without decoding it.
func (r *Reader) Skip() error {
	code, err := r.code()
	if err != nil {
		return err
	}
	for range maxDepth + 1 { // as many descriptors as Any takes, and the value
		if code != codeDescribed {
			_, err = r.body(code)
			return err
		}
		if err = r.skipNested(); err != nil { // the descriptor
			return err
		}
		if code, err = r.code(); err != nil {
			return err
		}
	}
	return malformed("descriptors nested deeper than %d", maxDepth)
}

func (r *Reader) skipNested() error {
	if r.depth++; r.depth > maxDepth {
		return malformed("nested deeper than %d", maxDepth)
	}
	defer func() { r.depth-- }()
	return r.Skip()
}

// body returns the bytes of a value whose code has been read; for compounds they start with
// the count.
func (r *Reader) body(code byte) ([]byte, error) {
	if n := fixedWidth(code); n >= 0 {
		return r.next(n)
	}
	switch code >> 4 {
	case 0xa, 0xc, 0xe:
		n, err := r.next(1)
		if err != nil {
			return nil, err
		}
		return r.next(int(n[0]))
	case 0xb, 0xd, 0xf:
		n, err := r.next(4)
		if err != nil {
			return nil, err
		}
		size := binary.BigEndian.Uint32(n)
		if uint64(size) > uint64(len(r.buf)) {
			return nil, malformed("declared size %d, have %d", size, len(r.buf))
		}
		return r.next(int(size))
	default:
		return nil, malformed("unknown type code %#02x", code)
	}
}

// compound splits the body of a list, map or array into a reader of its elements and a count.
// Every element takes at least one byte, so a count beyond the body is refused before it can
// size an allocation.
func (r *Reader) compound(code byte) (Reader, int, error) {
	if code == codeList0 {
		return Reader{depth: r.depth}, 0, nil
	}
	body, err := r.body(code)
	if err != nil {
		return Reader{}, 0, err
	}
	var count uint32
	switch code >> 4 {
	case 0xc, 0xe:
		if len(body) < 1 {
			return Reader{}, 0, malformed("compound without count")
		}
		count, body = uint32(body[0]), body[1:]
	default:
		if len(body) < 4 {
			return Reader{}, 0, malformed("compound without count")
		}
		count, body = binary.BigEndian.Uint32(body), body[4:]
	}
	if uint64(count) > uint64(len(body)) {
		return Reader{}, 0, malformed("count %d exceeds %d bytes", count, len(body))
	}
	return Reader{buf: body, depth: r.depth + 1}, int(count), nil
}

// Any decodes one value to its natural Go type: bool, the sized integers and floats,
// time.Time (UTC), UUID, string, Symbol, []byte, []any, map[any]any, Array, Described or Raw.
func (r *Reader) Any() (any, error) {
	if r.depth > maxDepth {
		return nil, malformed("nested deeper than %d", maxDepth)
	}
	code, err := r.code()
	if err != nil {
		return nil, err
	}
	return r.value(code)
}

func (r *Reader) value(code byte) (any, error) {
	switch code {
	case codeDescribed:
		return r.described()
	case codeList0, codeList8, codeList32:
		return r.list(code)
	case codeMap8, codeMap32:
		return r.mapping(code)
	case codeArray8, codeArray32:
		return r.array(code)
	}
	b, err := r.body(code)
	if err != nil {
		return nil, err
	}
	return primitive(code, b)
}

// primitive decodes a value of fixed or variable width from its body.
func primitive(code byte, b []byte) (any, error) {
	switch code {
	case codeNull:
		return nil, nil
	case codeTrue:
		return true, nil
	case codeFalse:
		return false, nil
	case codeBool:
		return b[0] != 0, nil
	case codeUint0:
		return uint32(0), nil
	case codeUlong0:
		return uint64(0), nil
	case codeUbyte:
		return b[0], nil
	case codeByte:
		return int8(b[0]), nil
	case codeSmallUint:
		return uint32(b[0]), nil
	case codeSmallUlong:
		return uint64(b[0]), nil
	case codeSmallInt:
		return int32(int8(b[0])), nil
	case codeSmallLong:
		return int64(int8(b[0])), nil
	case codeUshort:
		return binary.BigEndian.Uint16(b), nil
	case codeShort:
		return int16(binary.BigEndian.Uint16(b)), nil
	case codeUint:
		return binary.BigEndian.Uint32(b), nil
	case codeInt:
		return int32(binary.BigEndian.Uint32(b)), nil
	case codeFloat:
		return math.Float32frombits(binary.BigEndian.Uint32(b)), nil
	case codeUlong:
		return binary.BigEndian.Uint64(b), nil
	case codeLong:
		return int64(binary.BigEndian.Uint64(b)), nil
	case codeDouble:
		return math.Float64frombits(binary.BigEndian.Uint64(b)), nil
	case codeTimestamp:
		return time.UnixMilli(int64(binary.BigEndian.Uint64(b))).UTC(), nil
	case codeUUID:
		return UUID(b), nil
	case codeBin8, codeBin32:
		return b, nil
	case codeStr8, codeStr32:
		return string(b), nil
	case codeSym8, codeSym32:
		return Symbol(b), nil
	case codeChar, codeDecimal32, codeDecimal64, codeDecimal128:
		return Raw{Code: code, Bytes: string(b)}, nil
	default:
		return nil, malformed("unknown type code %#02x", code)
	}
}

func (r *Reader) described() (any, error) {
	if r.depth++; r.depth > maxDepth {
		return nil, malformed("nested deeper than %d", maxDepth)
	}
	defer func() { r.depth-- }()
	d, err := r.Any()
	if err != nil {
		return nil, err
	}
	v, err := r.Any()
	if err != nil {
		return nil, err
	}
	return Described{Descriptor: d, Value: v}, nil
}

func (r *Reader) list(code byte) (any, error) {
	in, n, err := r.compound(code)
	if err != nil {
		return nil, err
	}
	out := make([]any, n)
	for i := range out {
		if out[i], err = in.Any(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (r *Reader) mapping(code byte) (any, error) {
	in, n, err := r.compound(code)
	if err != nil {
		return nil, err
	}
	if n%2 != 0 {
		return nil, malformed("map with %d elements", n)
	}
	out := make(map[any]any, n/2)
	for range n / 2 {
		k, err := in.Any()
		if err != nil {
			return nil, err
		}
		if !comparableKey(k) {
			return nil, malformed("map key of type %T", k)
		}
		if out[k], err = in.Any(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func comparableKey(k any) bool {
	switch k.(type) {
	case nil, []byte, []any, map[any]any, Array, Described:
		return false
	default:
		return true
	}
}

func (r *Reader) array(code byte) (any, error) {
	in, n, err := r.compound(code)
	if err != nil {
		return nil, err
	}
	if in.depth > maxDepth {
		return nil, malformed("nested deeper than %d", maxDepth)
	}
	if n == 0 {
		return Array{}, nil
	}
	element, err := in.code()
	if err != nil {
		return nil, err
	}
	if element == codeDescribed {
		return nil, malformed("arrays of described types are not supported")
	}
	out := make(Array, n)
	for i := range out {
		if out[i], err = in.value(element); err != nil {
			return nil, err
		}
	}
	return out, nil
}
