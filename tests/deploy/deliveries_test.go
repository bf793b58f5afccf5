package deploy

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The projector's MAX_DELIVERIES is that of the entity, because it must park an event before the
// broker dead-letters it.
func TestMaxDeliveriesMatchesTheEntity(t *testing.T) {
	most := find(t, "modules/servicebus.bicep", "param", "maxDeliveryCount")
	require.Equal(t, most.Value.Text, containerEnv(t, "projector")["MAX_DELIVERIES"].Text)
	require.Contains(t, read(t, "tests/e2e/live/world_test.go"), "\tmaxDeliveries = "+most.Value.Text+"\n", "the tests use the deployed value")
}
