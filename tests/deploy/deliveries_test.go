package deploy

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The projector is told how often the broker delivers, because it must park an event before that.
func TestTheProjectorKnowsHowOftenTheBrokerDelivers(t *testing.T) {
	most, found := template(t, "modules/servicebus.bicep").Find("param", "maxDeliveryCount")
	require.True(t, found)
	require.Equal(t, most.Value.Text, containerEnv(t, "projector")["MAX_DELIVERIES"].Text)
	require.Contains(t, read(t, "tests/e2e/live/world_test.go"), "\tmaxDeliveries = "+most.Value.Text+"\n", "what is tested is what is deployed")
}
