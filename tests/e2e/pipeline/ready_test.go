package pipeline_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// ready asks the service that writes this log whether it is ready; ok is false if it does not
// answer.
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

// A producer that has been asked to stop reports that it is not ready while it sends what is in
// flight.
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

// A new revision that cannot reach what a leader needs must not replace a working one.
func TestAProducerIsReadyOnceItHasReachedWhatALeaderNeeds(t *testing.T) {
	s := newRealStack(t, false)
	network := &world.Plug{}
	network.Pull()
	a := s.startOn("a", network)
	s.until("it answers", func() bool { _, ok := s.ready(a.log); return ok })
	s.until("it has complained of both", func() bool {
		text := a.log.Text()
		return strings.Contains(text, "connection to Service Bus") && strings.Contains(text, "connection to MongoDB")
	})
	status, _ := s.ready(a.log)
	require.Equal(t, http.StatusServiceUnavailable, status)
	network.PlugIn()
	s.until("it is ready", func() bool { status, _ := s.ready(a.log); return status == http.StatusOK })
	s.leads("a") // only a leader has a heartbeat
	network.Pull()
	s.until("it has noticed", func() bool {
		return strings.Contains(a.log.Text(), "dependency=heartbeat") || strings.Contains(a.log.Text(), `"heartbeat"`)
	})
	status, _ = s.ready(a.log)
	require.Equal(t, http.StatusOK, status, "what fails later would fail anywhere else")
	network.PlugIn()
	a.stop()
	require.NoError(t, <-a.done)
}
