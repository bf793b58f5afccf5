package azure

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnEntityIsAQueueOrASubscription(t *testing.T) {
	queue, subscription := Entity{Queue: "q"}, Entity{Topic: "t", Subscription: "s"}
	require.NoError(t, queue.Validate())
	require.NoError(t, subscription.Validate())
	require.Equal(t, []string{"q", "q"}, []string{queue.String(), queue.Path()})
	require.Equal(t, []string{"t/s", "t/Subscriptions/s"}, []string{subscription.String(), subscription.Path()})
	for want, wrong := range map[string]Entity{
		"SERVICE_BUS_QUEUE: must not be set together":                  {Topic: "t", Subscription: "s", Queue: "q"},
		"SERVICE_BUS_TOPIC: is required, with":                         {},
		"SERVICE_BUS_TOPIC: is required with SERVICE_BUS_SUBSCRIPTION": {Subscription: "s"},
		"SERVICE_BUS_SUBSCRIPTION: is required with SERVICE_BUS_TOPIC": {Topic: "t"},
	} {
		require.ErrorContains(t, wrong.Validate(), want)
	}
}
