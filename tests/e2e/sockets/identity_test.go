package sockets_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/blob"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// identityEndpoint is the endpoint that Container Apps provides to a workload with a managed
// identity: tokens over HTTP.
type identityEndpoint struct {
	client string // a different one in each run: the SDK keeps an identity's tokens for as long as the process lives

	mu        sync.Mutex // guards everything below
	resources map[string]int
	problems  []string
}

// seen returns a copy of the requests so far, and of what was wrong with them.
func (e *identityEndpoint) seen() (problems []string, resources map[string]int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.problems), maps.Clone(e.resources)
}

func (e *identityEndpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.Header.Get("X-Identity-Header") != "a-header" || r.URL.Query().Get("client_id") != e.client {
		e.problems = append(e.problems, "a request without the header or for another identity: "+r.URL.RawQuery)
	}
	e.resources[r.URL.Query().Get("resource")]++
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{
		"access_token": "a-token", "token_type": "Bearer", "resource": r.URL.Query().Get("resource"),
		"expires_on": fmt.Sprint(time.Now().Add(time.Hour).Unix()),
	})
}

// In Azure nothing secret is configured: the services sign in to Service Bus and Blob storage as
// their managed identity.
func TestServicesSignInWithTheirManagedIdentity(t *testing.T) {
	identity := &identityEndpoint{client: rand.Text(), resources: map[string]int{}}
	endpoint := httptest.NewServer(identity)
	defer endpoint.Close()
	s := newRealStack(t, false)
	blobs := blob.New(blob.Options{Token: "a-token"})
	t.Setenv("IDENTITY_ENDPOINT", endpoint.URL)
	t.Setenv("IDENTITY_HEADER", "a-header")
	t.Setenv("AZURE_CLIENT_ID", identity.client)
	s.settings = map[string]string{
		emulator.EnvMongo: s.mongo, "HTTP_ADDR": "127.0.0.1:0",
		"SERVICE_BUS_NAMESPACE": "contoso.servicebus.windows.net", "SERVICE_BUS_TOPIC": emulator.Topic,
		"BLOB_ACCOUNT_URL": "https://devstoreaccount1.blob.core.windows.net",
		"MONGODB_DATABASE": "shop", "MONGODB_COLLECTION": "events", "OPERATIONS": "insert",
		"SERVICE_BUS_SUBSCRIPTION": emulator.Subscription, "READ_MODEL_DATABASE": "readmodel",
	}
	producing, projecting := s.configured()
	log, logger := recorded()
	bus, storage := world.BusOptions(s.bus()), world.BlobOptions(blobs.Transport())
	stop := s.run(producing, producer.Options{Logger: logger, Blob: storage, ServiceBus: bus}, projecting, projector.Options{Logger: logger, ServiceBus: bus})
	defer func() {
		if t.Failed() {
			t.Log(log.Text())
		}
	}()

	checkpoints, err := azblob.NewClientFromConnectionString(blob.ConnectionString(world.BlobHost), storage)
	require.NoError(t, err)
	s.blobs = checkpoints
	s.leads("a")
	s.insert(10)
	s.until("ten events are visible", func() bool {
		doc, err := world.ReadTimeline(t.Context(), s.client, "one")
		return err == nil && doc.Events == 10
	})
	stop()

	problems, resources := identity.seen()
	require.Empty(t, problems)
	require.NotZero(t, resources["https://servicebus.azure.net/"], "%v", resources)
	require.NotZero(t, resources["https://storage.azure.com"], "%v", resources)
}
