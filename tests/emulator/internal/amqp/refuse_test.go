package amqp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Only the link is refused; the connection stays open.
func TestUnsupportedFeaturesAreRefusedByName(t *testing.T) {
	for name, change := range map[string]func(*Attach) string{
		"transactions": func(a *Attach) string {
			a.Target = &Terminus{Descriptor: descCoordinator, Fields: []any{}}
			return "transactions are not supported"
		},
		"link resumption": func(a *Attach) string {
			a.Resumes, a.Receiver = true, true
			return "resuming a link is not supported"
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := newRaw(t, echoing(5))
			a := Attach{
				Name: "x", Source: &Terminus{Descriptor: descSource, Fields: []any{"q"}},
				Target: &Terminus{Descriptor: descTarget, Fields: []any{"q"}},
			}
			want := change(&a)
			r.send(a.append)
			desc, f := r.next()
			require.Equal(t, uint64(descAttach), desc)
			var answer Attach
			require.NoError(t, answer.decode(f))
			require.Nil(t, answer.Target)
			desc, f = r.next()
			require.Equal(t, uint64(descDetach), desc)
			var d Detach
			require.NoError(t, d.decode(f))
			require.Equal(t, CondNotImplemented, d.Err.Condition)
			require.Contains(t, d.Err.Description, want)
			credit := Flow{IncomingWindow: 10, HasHandle: true, LinkCredit: 5, HasLinkCredit: true} // it crossed the refusal
			r.send(func(b []byte) ([]byte, error) { return credit.append(b), nil })
			r.send((&Detach{Handle: 0, Closed: true}).append)
			r.attachSender(3)
			desc, _ = r.next()
			require.Equal(t, uint64(descAttach), desc)
		})
	}
}
