package amqp

import (
	"fmt"
	"time"
)

// What a client sends and the server neither knows nor can obey is refused, never dropped.

// must fails if a mandatory field is missing.
func (f *fields) must(there bool, name string) {
	if !there && f.err == nil {
		f.err = malformed("the mandatory field %s is missing", name)
	}
}

// atMost fails if a value is above those that the standard defines.
func (f *fields) atMost(v, most uint8, name string) {
	if v > most && f.err == nil {
		f.err = &Error{Condition: CondInvalidField, Description: fmt.Sprintf("%s is %d, and at most %d", name, v, most)}
	}
}

// end returns the first error. Fields beyond those of the type are one.
func (f *fields) end() error {
	if f.err == nil && f.n > 0 {
		f.err = malformed("%d fields more than the type has", f.n)
	}
	return f.err
}

// is reads a field that nothing depends on, and fails if it is neither null nor of a type of the
// standard.
func (f *fields) is(name string, of func(any) bool) {
	if v := f.any(); v != nil && f.err == nil && !of(v) {
		f.err = malformed("%s is %T", name, v)
	}
}

func isUint(v any) bool   { _, ok := v.(uint32); return ok }
func isSymbol(v any) bool { _, ok := v.(Symbol); return ok }
func isText(v any) bool   { _, ok := v.(string); return ok }
func isBool(v any) bool   { _, ok := v.(bool); return ok }
func isBinary(v any) bool { _, ok := v.([]byte); return ok }
func isTime(v any) bool   { _, ok := v.(time.Time); return ok }

// isMessageID reports whether v may be the id of a message [AMQP-3.2.11].
func isMessageID(v any) bool {
	switch v.(type) {
	case uint64, UUID, []byte, string:
		return true
	}
	return false
}

// isSymbols reports whether v is a symbol or an array of symbols. Qpid Proton writes a list of
// them.
func isSymbols(v any) bool {
	elements, ok := v.([]any)
	if array, is := v.(Array); is {
		elements, ok = array, true
	}
	for _, e := range elements {
		ok = ok && isSymbol(e)
	}
	return ok || isSymbol(v)
}

// isNames reports whether v is a map whose keys are symbols; strings count as such.
func isNames(v any) bool {
	m, ok := v.(map[any]any)
	for k := range m {
		ok = ok && (isSymbol(k) || isText(k))
	}
	return ok
}

// isState reports whether v may be a delivery state or an outcome.
func isState(v any) bool {
	d, _ := v.(Described)
	code, known := d.Descriptor.(uint64)
	name, named := d.Descriptor.(Symbol)
	return known && code >= uint64(Received) && code <= uint64(Modified) || named && name != ""
}

// fault returns why the fields of a terminus are not those of its type; nil if they are.
func (t *Terminus) fault() error {
	type field = struct {
		name string
		is   func(any) bool
	}
	f := []field{
		{"address", isText},
		{"durable", isUint},
		{"expiry-policy", isSymbol},
		{"timeout", isUint},
		{"dynamic", isBool},
		{"dynamic-node-properties", isNames},
	}
	switch t.Descriptor {
	case descSource:
		f = append(f, field{"distribution-mode", isSymbol}, field{"filter", isNames}, field{"default-outcome", isState},
			field{"outcomes", isSymbols}, field{"capabilities", isSymbols})
	case descTarget:
		f = append(f, field{"capabilities", isSymbols})
	case descCoordinator:
		f = []field{{"capabilities", isSymbols}}
	}
	if len(t.Fields) > len(f) {
		return malformed("a terminus has %d fields more than its type", len(t.Fields)-len(f))
	}
	for i, v := range t.Fields {
		if v != nil && !f[i].is(v) {
			return malformed("%s of a terminus is %T", f[i].name, v)
		}
	}
	return nil
}

// copies reports whether a source asks for copies of messages, which others then get as well.
func (t *Terminus) copies() bool {
	const distributionMode = 6
	return t != nil && t.Descriptor == descSource && len(t.Fields) > distributionMode && t.Fields[distributionMode] == Symbol("copy")
}

// dynamic reports whether a terminus requests the creation of a node.
func (t *Terminus) dynamic() bool {
	const dynamic = 4
	return t != nil && t.Descriptor != descCoordinator && len(t.Fields) > dynamic && t.Fields[dynamic] == true
}
