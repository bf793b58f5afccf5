// Package sockets_test tests the promises of both services together over TCP and in real time, on
// the stack that a user runs, and with a real MongoDB if one is configured: failover on every blob
// store, the procedures of the pages, traces, metrics and signing in.
package sockets_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// The times of leadership are as short as the configuration allows.

// onEveryBlobStore runs a test once against the embedded blob server and once against Azurite,
// which needs real time.
func onEveryBlobStore(t *testing.T, test func(t *testing.T, s *realStack)) {
	t.Helper()
	sideBySide(t)
	for name, withAzurite := range map[string]bool{"embedded": false, "Azurite": true} {
		t.Run(name, func(t *testing.T) {
			sideBySide(t)
			test(t, newRealStack(t, withAzurite))
		})
	}
}

func TestG1G2G4FailoverOnEveryBlobStore(t *testing.T) {
	onEveryBlobStore(t, func(t *testing.T, s *realStack) {
		a := s.start("a")
		s.leads("a")
		b := s.start("b")
		s.insert(50)
		s.until("all is in the checkpoint", func() bool { return s.checkpoint().Published == 50 })

		s.insert(25)
		a.network.Pull() // a vanishes, perhaps in the middle of a send
		s.insert(25)
		s.leads("b")
		s.until("all is in the checkpoint", func() bool { return s.checkpoint().Published == 100 })
		require.EqualValues(t, 2, s.checkpoint().Epoch)

		a.network.PlugIn() // a comes back and stands by
		s.insert(10)
		b.end()
		s.leads("a")
		s.insert(10)
		s.until("all is in the checkpoint", func() bool { return s.checkpoint().Published == 120 })
		require.EqualValues(t, 3, s.checkpoint().Epoch)
		a.end()

		epochs := s.received()
		require.EqualValues(t, 1, epochs[0])
		require.EqualValues(t, 3, epochs[len(epochs)-1])
	})
}

// G4: the lease protects the very blob that holds the checkpoint, so that only the leader can write
// it.
func TestG4CheckpointIsLeasedOnEveryBlobStore(t *testing.T) {
	onEveryBlobStore(t, func(t *testing.T, s *realStack) {
		a := s.start("a")
		s.leads("a")
		checkpoint := s.blobs.ServiceClient().NewContainerClient("sluice").NewBlockBlobClient("shop.events.json")

		_, err := checkpoint.UploadBuffer(t.Context(), []byte("{}"), nil)
		require.True(t, bloberror.HasCode(err, bloberror.LeaseIDMissing), "%v", err)
		_, err = checkpoint.Delete(t.Context(), nil)
		require.True(t, bloberror.HasCode(err, bloberror.LeaseIDMissing), "%v", err)
		stranger, err := lease.NewBlobClient(checkpoint, nil)
		require.NoError(t, err)
		_, err = stranger.AcquireLease(t.Context(), 15, nil)
		require.True(t, bloberror.HasCode(err, bloberror.LeaseAlreadyPresent), "%v", err)

		// A heartbeat changes the ETag, which standbys watch.
		etag := func() azcore.ETag {
			properties, err := checkpoint.GetProperties(t.Context(), nil)
			require.NoError(t, err)
			return *properties.ETag
		}
		first := etag()
		s.until("a heartbeat", func() bool { return etag() != first })

		a.end()
		properties, err := checkpoint.GetProperties(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, lease.StateTypeAvailable, *properties.LeaseState, "released, and not deleted: the epoch stays")
		require.EqualValues(t, 1, s.checkpoint().Epoch)

		b := s.start("b")
		s.leads("b")
		require.EqualValues(t, 2, s.checkpoint().Epoch)
		b.end()
	})
}

// G4: a leader whose lease was broken and acquired by another client is refused at its next write,
// and reports it.
func TestG4ALeaderWithoutItsLeaseStepsDownOnEveryBlobStore(t *testing.T) {
	onEveryBlobStore(t, func(t *testing.T, s *realStack) {
		a := s.start("a")
		s.leads("a")
		checkpoint := s.blobs.ServiceClient().NewContainerClient("sluice").NewBlockBlobClient("shop.events.json")
		stranger, err := lease.NewBlobClient(checkpoint, nil)
		require.NoError(t, err)
		atOnce := int32(0)
		_, err = stranger.BreakLease(t.Context(), &lease.BlobBreakOptions{BreakPeriod: &atOnce})
		require.NoError(t, err)
		_, err = stranger.AcquireLease(t.Context(), 15, nil)
		if !bloberror.HasCode(err, bloberror.LeaseAlreadyPresent) { // unless a was back before the other client
			require.NoError(t, err)
			s.until("a stands by", func() bool { return strings.Contains(a.log.Text(), "leadership ended, standing by") })
			_, err = stranger.ReleaseLease(t.Context(), nil)
			require.NoError(t, err)
		}
		s.until("a leads again", func() bool { return s.checkpoint().Epoch == 2 })
		a.end()
	})
}

// ready asks the service that writes this log whether it is ready; ok is false if it does not
// answer.
func (s *realStack) ready(log *world.Recorder) (status int, ok bool) {
	s.Helper()
	addr := served.FindStringSubmatch(log.Text())
	if addr == nil {
		return 0, false
	}
	status, _, err := s.get(addr[1], "/readyz")
	return status, err == nil
}

// A producer that has been asked to stop reports that it is not ready while it sends what is in
// flight.
func TestAProducerThatStopsIsNotReady(t *testing.T) {
	sideBySide(t)
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
	sideBySide(t)
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
	a.end()
}
