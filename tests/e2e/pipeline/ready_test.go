package pipeline_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// ready asks the service that writes this log whether it is ready; ok is false when nobody answers.
func (s *realStack) ready(log *world.Recorder) (status int, ok bool) {
	s.Helper()
	addr := served.FindStringSubmatch(log.Text())
	if addr == nil {
		return 0, false
	}
	request, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "http://"+addr[1]+"/readyz", http.NoBody)
	require.NoError(s, err)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, false
	}
	defer response.Body.Close()
	return response.StatusCode, true
}

// A producer that has been asked to stop says that it is not ready while it sends what is in flight.
func TestAProducerThatStopsIsNotReady(t *testing.T) {
	s := newRealStack(t, false)
	a := s.start("a")
	s.leads("a")
	s.until("it is ready", func() bool { status, _ := s.ready(a.log); return status == http.StatusOK })
	end := s.stack.ServiceBus.Inject(servicebus.Faults{Send: servicebus.Fault{Delay: 400 * time.Millisecond}})
	defer end()
	s.insert(1)
	s.until("it is sending", func() bool { return value(s.scrape(a.log)["sluice_producer_in_flight"]) == 1 })
	a.stop()
	s.until("it is not ready", func() bool {
		status, ok := s.ready(a.log)
		require.True(t, ok, "it ended and was ready until then")
		return status == http.StatusServiceUnavailable
	})
	require.NoError(t, <-a.done)
	require.EqualValues(t, 1, s.checkpoint().Published)
}
