package broker

import (
	"errors"
	"fmt"
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/servicebus"
)

// A broker that opens no link because of its load is as busy as one that refuses a send: its leader
// waits thirty times as long before it steps down. Any other refusal of a link is not.
func TestALinkThatIsRefusedForLoadIsABusyBroker(t *testing.T) {
	busy := &amqp.Error{Condition: servicebus.CondServerBusy}
	for name, test := range map[string]struct {
		err  error
		busy bool
	}{
		"the attach is refused":         {busy, true},
		"the link is detached at once":  {&amqp.LinkError{RemoteErr: busy}, true},
		"the session is ended":          {&amqp.SessionError{RemoteErr: busy}, true},
		"the connection is closed":      {&amqp.ConnError{RemoteErr: busy}, true},
		"the entity does not exist":     {&amqp.Error{Condition: amqp.ErrCondNotFound}, false},
		"the link is detached silently": {&amqp.LinkError{}, false},
		"the network fails":             {errors.New("connection reset"), false},
	} {
		t.Run(name, func(t *testing.T) {
			err := openError(fmt.Errorf("open a link to changes: %w", test.err))
			require.Equal(t, test.busy, errors.Is(err, ErrBusy))
			require.ErrorIs(t, err, test.err)
		})
	}
}
