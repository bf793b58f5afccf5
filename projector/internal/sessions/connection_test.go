package sessions

import (
	"errors"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
)

func dialNothing() (*azservicebus.Client, error) {
	return azservicebus.NewClientFromConnectionString("Endpoint=sb://x.invalid;SharedAccessKeyName=a;SharedAccessKey=b", nil)
}

func open(u *client) bool {
	_, err := u.NewReceiverForQueue("q", nil)
	return err == nil
}

// A client on which something broke is used by nobody new, and closed when its last user is done.
func TestABrokenClientIsReplacedAndClosedLater(t *testing.T) {
	c := &connection{dial: dialNothing, within: time.Second}
	first, err := c.take()
	require.NoError(t, err)
	second, err := c.take()
	require.NoError(t, err)
	require.Same(t, first, second)

	first.giveBack(t.Context(), true)
	third, err := c.take()
	require.NoError(t, err)
	require.NotSame(t, second, third)
	c.closing.Wait()
	require.True(t, open(second), "closed under the hands of its user")

	second.giveBack(t.Context(), true)
	c.closing.Wait()
	require.False(t, open(second))
	fourth, err := c.take()
	require.NoError(t, err)
	require.Same(t, third, fourth, "an old client's end is not the new one's")

	third.giveBack(t.Context(), false)
	fourth.giveBack(t.Context(), false)
	c.closing.Wait()
	require.True(t, open(third), "kept for the next one")
	c.close(t.Context())
	require.False(t, open(third))
}

func TestAClientThatCannotBeMadeIsAnError(t *testing.T) {
	broken := errors.New("no such namespace")
	_, err := New(2, func() (*azservicebus.Client, error) { return nil, broken }, Options{})
	require.ErrorIs(t, err, broken)
}

func TestOnlyALostConnectionIsInDoubt(t *testing.T) {
	require.True(t, inDoubt(&azservicebus.Error{Code: azservicebus.CodeConnectionLost}))
	require.False(t, inDoubt(&azservicebus.Error{Code: azservicebus.CodeTimeout}))
	require.False(t, inDoubt(&azservicebus.Error{Code: azservicebus.CodeUnauthorizedAccess}))
	require.False(t, inDoubt(nil))
}
