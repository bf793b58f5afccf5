package amqp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Python's client reads the fields of performatives by index, and fails if the last ones are
// missing.
func TestPerformativesHaveAllFields(t *testing.T) {
	whole := func(b []byte) ([]byte, error) { return b, nil }
	for name, c := range map[string]struct {
		fields int
		write  func() ([]byte, error)
	}{
		"open":                     {10, func() ([]byte, error) { return (&Open{}).append(nil) }},
		"begin":                    {8, func() ([]byte, error) { return whole((&Begin{}).append(nil)) }},
		"attach":                   {14, func() ([]byte, error) { return (&Attach{}).append(nil) }},
		"flow of a link":           {11, func() ([]byte, error) { return whole((&Flow{HasHandle: true}).append(nil)) }},
		"flow of a session":        {11, func() ([]byte, error) { return whole((&Flow{}).append(nil)) }},
		"first transfer":           {11, func() ([]byte, error) { return whole((&Transfer{HasDeliveryID: true}).append(nil)) }},
		"continued transfer":       {11, func() ([]byte, error) { return whole((&Transfer{}).append(nil)) }},
		"disposition":              {6, func() ([]byte, error) { return (&Disposition{}).append(nil) }},
		"detach":                   {3, func() ([]byte, error) { return (&Detach{}).append(nil) }},
		"end":                      {1, func() ([]byte, error) { return (&ending{descriptor: descEnd}).append(nil) }},
		"error without an account": {3, func() ([]byte, error) { return appendError(nil, &Error{Condition: "x"}) }},
		"modified":                 {3, func() ([]byte, error) { return (&State{Outcome: Modified}).append(nil) }},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := c.write()
			require.NoError(t, err)
			_, f, err := readComposite(NewReader(b))
			require.NoError(t, err)
			require.Equal(t, c.fields, f.n)
			for range c.fields {
				f.any()
			}
			require.NoError(t, f.err)
			require.Zero(t, f.r.Len(), "the count is that of the fields")
		})
	}
}

// The service treats a filter with another descriptor as another filter.
func TestAFilterIsRecognisedByItsDescriptor(t *testing.T) {
	const name, code = Symbol("com.microsoft:session-filter"), uint64(0x137000000C)
	for form, c := range map[string]struct {
		value any
		known bool
	}{
		"bare":                        {"s", true},
		"described by its code":       {Described{code, "s"}, true},
		"described by its name":       {Described{name, "s"}, true},
		"described by another code":   {Described{uint64(0x1370000000C), "s"}, false},
		"described by another name":   {Described{Symbol("apache.org:selector-filter:string"), "s"}, false},
		"described by a plain string": {Described{string(name), "s"}, false},
	} {
		t.Run(form, func(t *testing.T) {
			terminus := &Terminus{Descriptor: descSource, Fields: make([]any, filterField+1)}
			terminus.Fields[filterField] = map[any]any{name: c.value}
			value, known := terminus.Filter(name, code)
			require.Equal(t, c.known, known)
			if known {
				require.Equal(t, "s", value)
			}
		})
	}
}

// Go, .NET and Python describe a filter's value; JavaScript compares it with a bare string.
func TestAFilterIsEchoedInTheClientsForm(t *testing.T) {
	const name, code = Symbol("com.microsoft:session-filter"), uint64(0x137000000C)
	for form, c := range map[string]struct{ asked, answered map[any]any }{
		"described":           {map[any]any{name: Described{code, "s"}}, map[any]any{name: Described{code, "s"}}},
		"described, any":      {map[any]any{name: Described{code, nil}}, map[any]any{name: Described{code, "s"}}},
		"bare":                {map[any]any{name: "s"}, map[any]any{name: "s"}},
		"bare, any":           {map[any]any{name: nil}, map[any]any{name: "s"}},
		"named with a string": {map[any]any{string(name): nil}, map[any]any{string(name): "s"}},
	} {
		t.Run(form, func(t *testing.T) {
			r, _ := newRaw(t, Options{OnAttach: func(l *Link) LinkHandler {
				l.Accept(Terms{Source: l.Source.WithFilter(name, "s")})
				return &echo{link: l}
			}})
			a := Attach{
				Name: "r", Receiver: true, Target: &Terminus{Descriptor: descTarget, Fields: []any{"q"}},
				Source: &Terminus{Descriptor: descSource, Fields: []any{"q", nil, nil, nil, nil, nil, nil, c.asked}},
			}
			r.send(a.append)
			_, f := r.next()
			var answer Attach
			require.NoError(t, answer.decode(f))
			require.Equal(t, c.answered, answer.Source.Fields[filterField])
		})
	}
}
