package amqp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// performative returns a frame of these fields, whether its type has them or not.
func performative(descriptor byte, values ...any) func([]byte) ([]byte, error) {
	return func(b []byte) ([]byte, error) { return AppendAny(b, Described{uint64(descriptor), values}) }
}

// A client that sends such a frame must get an error, instead of being understood in part.
func TestInvalidFramesAreRefused(t *testing.T) {
	source, target := Described{uint64(descSource), []any{"q"}}, Described{uint64(descTarget), []any{"q"}}
	attach := func(change func(fields []any)) func([]byte) ([]byte, error) {
		fields := []any{"l", uint32(0), false, uint8(0), uint8(0), source, target, nil, nil, uint32(0)}
		change(fields)
		return performative(descAttach, fields...)
	}
	filtered := func(filter any) Described {
		return Described{uint64(descSource), []any{"q", nil, nil, nil, nil, nil, nil, filter}}
	}
	state := func(s any) func([]byte) ([]byte, error) {
		return performative(descDisposition, true, uint32(0), nil, true, s)
	}
	for name, c := range map[string]struct {
		frame     func([]byte) ([]byte, error)
		ends      uint64 // what answers: the end of what
		condition Symbol
	}{
		"a performative with too many fields": {performative(descDetach, uint32(0), true, nil, nil), descClose, CondDecodeError},
		"an unknown performative":             {performative(0x19), descClose, CondDecodeError},
		"an attach without a name":            {attach(func(f []any) { f[0] = nil }), descClose, CondDecodeError},
		"an attach without a role":            {attach(func(f []any) { f[2] = nil }), descClose, CondDecodeError},
		"an invalid settle mode":              {attach(func(f []any) { f[3] = uint8(3) }), descClose, CondInvalidField},
		"an invalid terminus":                 {attach(func(f []any) { f[5] = Described{uint64(0x2a), []any{"q"}} }), descClose, CondDecodeError},
		"a terminus with a symbolic name":     {attach(func(f []any) { f[5] = Described{Symbol("amqp:source:list"), []any{"q"}} }), descClose, CondDecodeError},
		"a terminus with too many fields":     {attach(func(f []any) { f[6] = Described{uint64(descTarget), make([]any, 8)} }), descClose, CondDecodeError},
		"an address that is no text":          {attach(func(f []any) { f[6] = Described{uint64(descTarget), []any{uint32(1)}} }), descClose, CondDecodeError},
		"a filter that is no map":             {attach(func(f []any) { f[5] = filtered("a") }), descClose, CondDecodeError},
		"a filter with an invalid name":       {attach(func(f []any) { f[5] = filtered(map[any]any{uint64(1): "a"}) }), descClose, CondDecodeError},
		"a dynamic node":                      {attach(func(f []any) { f[6] = Described{uint64(descTarget), []any{nil, nil, nil, nil, true}} }), descDetach, CondNotImplemented},
		"a source of copies": {attach(func(f []any) {
			f[5] = Described{uint64(descSource), []any{"q", nil, nil, nil, nil, nil, Symbol("copy")}}
		}), descDetach, CondNotImplemented},
		"a flow without a window":               {performative(descFlow, nil, nil, uint32(0), uint32(1)), descClose, CondDecodeError},
		"an outcome of a delivery never sent":   {state(Described{uint64(Accepted), []any{}}), descEnd, CondInvalidField},
		"an outcome of a range that ends first": {performative(descDisposition, true, uint32(4), uint32(3), true, Described{uint64(Accepted), []any{}}), descEnd, CondInvalidField},
		"an invalid outcome":                    {state(Described{uint64(0x28), []any{}}), descClose, CondDecodeError},
		"a transaction's state":                 {state(Described{uint64(0x34), []any{[]byte("t")}}), descClose, CondDecodeError},
		"an outcome with too many fields":       {state(Described{uint64(Accepted), []any{true}}), descClose, CondDecodeError},
		"an outcome with a field of no use":     {state(Described{uint64(Modified), []any{"yes"}}), descClose, CondDecodeError},
		"a transfer in a transaction":           {performative(descTransfer, uint32(0), uint32(0), []byte("t"), uint32(0), false, false, nil, Described{uint64(0x34), []any{[]byte("t")}}), descClose, CondNotImplemented},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := newRaw(t, echoing(5))
			require.NoError(t, r.conn.SetReadDeadline(time.Now().Add(10*time.Second))) // what is ignored is not answered
			r.send(c.frame)
			if c.ends == descDetach {
				desc, _ := r.next()
				require.Equal(t, uint64(descAttach), desc)
				r.expectDetach(c.condition)
				return
			}
			r.expectEnding(c.ends, c.condition)
		})
	}
}

// Everything outside the standard's types is refused.
func TestInvalidMessagesAreRefused(t *testing.T) {
	section := func(descriptor uint64, value any) []byte {
		b, err := AppendAny(nil, Described{descriptor, value})
		require.NoError(t, err)
		return b
	}
	for name, b := range map[string][]byte{
		"an unknown section":                   section(0x79, []byte("x")),
		"a header with too many fields":        section(sectionHeader, make([]any, 6)),
		"properties with too many fields":      section(sectionProperties, make([]any, 14)),
		"an invalid id":                        section(sectionProperties, []any{int32(1)}),
		"an invalid time":                      section(sectionProperties, []any{nil, nil, nil, nil, nil, nil, nil, nil, "soon"}),
		"an annotation with an invalid name":   section(sectionAnnotations, map[any]any{uint64(1): "x"}),
		"delivery annotations that are a text": section(sectionDeliveryAnnotations, "x"),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseMessage(b)
			require.ErrorIs(t, err, ErrMalformed)
		})
	}
	m, err := ParseMessage(section(sectionAnnotations, map[any]any{Symbol("x-opt-partition-key"): nil}))
	require.NoError(t, err, "clients leave some without a value")
	require.Equal(t, map[string]any{"x-opt-partition-key": nil}, m.Annotations)
}
