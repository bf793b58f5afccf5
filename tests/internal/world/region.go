package world

import (
	"context"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// InAnotherRegion replaces Service Bus and Blob storage with empty ones and runs f. MongoDB stays.
// The services that were started before must have ended, since the old servers cannot be reached
// any more.
func (w *World) InAnotherRegion(f func()) {
	w.Helper()
	w.endServices()
	w.Producers, w.Projectors = nil, nil
	require.NoError(w, w.BusClient.Close(w.Context()))
	virtualtime.Wait()
	w.mu.Lock()
	w.empty(servicebus.Options{})
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	var serving sync.WaitGroup
	bus, network := w.Bus, w.BusNet
	serving.Go(func() {
		if err := bus.Run(ctx, network); err != nil {
			w.Errorf("run Service Bus: %v", err)
		}
	})
	defer serving.Wait()
	defer cancel()
	w.connectBus()
	defer func() {
		w.endServices()
		_ = w.BusClient.Close(context.WithoutCancel(w.Context()))
	}()
	f()
}
