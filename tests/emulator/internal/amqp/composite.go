package amqp

import "encoding/binary"

// fields reads the fields of a composite in order. Missing trailing fields read as null
// [AMQP-1.4]. The first error sticks; check err once at the end.
type fields struct {
	r   Reader
	n   int
	err error
}

// readComposite reads the descriptor and opens the list. A symbolic descriptor is accepted as
// long as it is one of names.
func readComposite(r *Reader) (descriptor uint64, f fields, err error) {
	code, err := r.code()
	if err != nil {
		return 0, f, err
	}
	if code != codeDescribed {
		return 0, f, malformed("expected a described type, got code %#02x", code)
	}
	if descriptor, err = readDescriptor(r); err != nil {
		return 0, f, err
	}
	if code, err = r.code(); err != nil {
		return 0, f, err
	}
	switch code {
	case codeList0, codeList8, codeList32:
	default:
		return 0, f, malformed("composite %#x is not a list", descriptor)
	}
	if f.r, f.n, err = r.compound(code); err != nil {
		return 0, f, err
	}
	return descriptor, f, nil
}

func readDescriptor(r *Reader) (uint64, error) {
	code, err := r.code()
	if err != nil {
		return 0, err
	}
	b, err := r.body(code)
	if err != nil {
		return 0, err
	}
	switch code {
	case codeSmallUlong:
		return uint64(b[0]), nil
	case codeUlong0:
		return 0, nil
	case codeUlong:
		return binary.BigEndian.Uint64(b), nil
	default:
		return 0, malformed("descriptor of type %#02x is not supported", code)
	}
}

// value returns the code and body of the next field; ok is false for null or missing.
func (f *fields) value() (code byte, body []byte, ok bool) {
	if f.err != nil || f.n == 0 {
		return 0, nil, false
	}
	f.n--
	if code, f.err = f.r.code(); f.err != nil {
		return 0, nil, false
	}
	if code == codeDescribed {
		f.err = malformed("unexpected described value")
		return 0, nil, false
	}
	if body, f.err = f.r.body(code); f.err != nil {
		return 0, nil, false
	}
	return code, body, code != codeNull
}

func (f *fields) fail(want string, code byte) {
	if f.err == nil {
		f.err = malformed("want %s, got code %#02x", want, code)
	}
}

func (f *fields) uint32() (uint32, bool) {
	code, b, ok := f.value()
	if !ok {
		return 0, false
	}
	switch code {
	case codeUint0:
		return 0, true
	case codeSmallUint:
		return uint32(b[0]), true
	case codeUint:
		return binary.BigEndian.Uint32(b), true
	}
	f.fail("uint", code)
	return 0, false
}

func (f *fields) uint64() (uint64, bool) {
	code, b, ok := f.value()
	if !ok {
		return 0, false
	}
	switch code {
	case codeUlong0:
		return 0, true
	case codeSmallUlong:
		return uint64(b[0]), true
	case codeUlong:
		return binary.BigEndian.Uint64(b), true
	}
	f.fail("ulong", code)
	return 0, false
}

func (f *fields) uint16() (uint16, bool) {
	code, b, ok := f.value()
	if !ok {
		return 0, false
	}
	if code == codeUshort {
		return binary.BigEndian.Uint16(b), true
	}
	f.fail("ushort", code)
	return 0, false
}

func (f *fields) uint8() (uint8, bool) {
	code, b, ok := f.value()
	if !ok {
		return 0, false
	}
	if code == codeUbyte {
		return b[0], true
	}
	f.fail("ubyte", code)
	return 0, false
}

func (f *fields) boolean() bool {
	v, _ := f.flag()
	return v
}

// flag is boolean; ok reports whether the field is there.
func (f *fields) flag() (v, ok bool) {
	code, b, ok := f.value()
	if !ok {
		return false, false
	}
	switch code {
	case codeTrue:
		return true, true
	case codeFalse:
		return false, true
	case codeBool:
		return b[0] != 0, true
	}
	f.fail("boolean", code)
	return false, false
}

// text reads a string or a symbol.
func (f *fields) text() (string, bool) {
	code, b, ok := f.value()
	if !ok {
		return "", false
	}
	switch code {
	case codeStr8, codeStr32, codeSym8, codeSym32:
		return string(b), true
	}
	f.fail("string or symbol", code)
	return "", false
}

// binary reads binary data that aliases the input.
func (f *fields) binary() []byte {
	code, b, ok := f.value()
	if !ok {
		return nil
	}
	switch code {
	case codeBin8, codeBin32:
		return b
	}
	f.fail("binary", code)
	return nil
}

func (f *fields) any() any {
	if f.err != nil || f.n == 0 {
		return nil
	}
	f.n--
	var v any
	v, f.err = f.r.Any()
	return v
}

// symbolMap reads a map with symbol (or string) keys.
func (f *fields) symbolMap() map[Symbol]any {
	v := f.any()
	m, ok := v.(map[any]any)
	if !ok {
		if v != nil && f.err == nil {
			f.err = malformed("want a map, got %T", v)
		}
		return nil
	}
	out := make(map[Symbol]any, len(m))
	for k, e := range m {
		switch k := k.(type) {
		case Symbol:
			out[k] = e
		case string:
			out[Symbol(k)] = e
		default:
			if f.err == nil {
				f.err = malformed("map key of type %T", k)
			}
		}
	}
	return out
}

// StringMap returns v as a map with string keys; symbols count as strings. It is nil when v
// is not a map; entries with other keys are left out.
func StringMap(v any) map[string]any {
	m, ok := v.(map[any]any)
	if !ok {
		return nil
	}
	out := make(map[string]any, len(m))
	for k, e := range m {
		switch k := k.(type) {
		case string:
			out[k] = e
		case Symbol:
			out[string(k)] = e
		}
	}
	return out
}
