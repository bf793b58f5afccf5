package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/azure"
	bus "github.com/sluice-cdc/sluice/shared/servicebus"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// The embedded Service Bus gives the answers in the table.
func TestTheEmbeddedServiceBusGivesTheAnswersOfTheTable(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		sessions := servicebus.Outbound{RequiresSession: true}
		server, err := servicebus.New(servicebus.Config{Queues: []servicebus.Queue{{Name: "q", Outbound: sessions}, {Name: "quiet", Outbound: sessions}}}, servicebus.Options{})
		require.NoError(t, err)
		l := netpipe.Serve(t, server.Run)
		namespace, err := bus.New(azure.ServiceBus{ConnectionString: servicebus.ConnectionString("bus:5672")}, nil, world.BusOptions(l))
		require.NoError(t, err)
		var out bytes.Buffer
		code := show(&out, probe(t.Context(), namespace, "q", "quiet"))
		t.Log(out.String())
		require.Zero(t, code)
	})
}

func TestADifferenceIsShown(t *testing.T) {
	answers := make([]answer, len(questions))
	for i, q := range questions {
		answers[i].text = q.ours
	}
	var out bytes.Buffer
	require.Zero(t, show(&out, answers))
	require.NotContains(t, out.String(), "DIFFERS")
	answers[2].text = "granted"
	require.Equal(t, 1, show(&out, answers))
	require.Regexp(t, `DIFFERS +a session filter with the descriptor 0x1370000000C is refused +amqp:not-allowed +granted`, out.String())
}
