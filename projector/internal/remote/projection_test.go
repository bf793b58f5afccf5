package remote

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// slowly answers each call after a second, and counts the calls that wait for their answer.
type slowly struct {
	mu            sync.Mutex
	waiting, most int // guarded by mu
}

func (s *slowly) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting += n
	s.most = max(s.most, s.waiting)
}

func (s *slowly) RoundTrip(r *http.Request) (*http.Response, error) {
	s.count(1)
	time.Sleep(time.Second)
	s.count(-1)
	body := io.NopCloser(strings.NewReader(`{"declaration":"h","results":[{"id":"0","writes":[]}]}`))
	return &http.Response{StatusCode: http.StatusOK, Body: body, Request: r}, nil
}

// A command that projects many events at once, such as a build, makes a few calls at once.
func TestACommandMakesFewCallsAtOnce(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		program := &slowly{}
		client := New(Options{URL: "http://127.0.0.1:8088"})
		client.http.Transport = program
		client.Use(&Declaration{Name: "p", Hash: "h"})
		body, err := bson.Marshal(bson.D{{Key: "fullDocument", Value: bson.D{}}})
		require.NoError(t, err)
		began := time.Now()
		var projecting sync.WaitGroup
		for range 4 * commandCalls {
			projecting.Go(func() {
				_, err := client.Projection().Project(projection.Event{Change: envelope.Change{Aggregate: "a", Body: body}})
				assert.NoError(t, err)
			})
		}
		projecting.Wait()
		require.Equal(t, commandCalls, program.most)
		require.Equal(t, 4*time.Second, time.Since(began))
	})
}
