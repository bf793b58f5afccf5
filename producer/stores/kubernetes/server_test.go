package kubernetes

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/sluice-cdc/sluice/producer/store"
	"github.com/sluice-cdc/sluice/producer/store/storetest"
)

// open returns the store on the API server that scripts/kubernetes.sh has started, as the producer
// with the rights of infra/kubernetes/checkpoint.
func open(t *testing.T, namespace string) *Store {
	t.Helper()
	api := os.Getenv("KUBERNETES_API")
	if api == "" {
		t.Skip("KUBERNETES_API is not set (scripts/kubernetes.sh)")
	}
	s, err := Open(&rest.Config{Host: api, BearerToken: "producer", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, namespace)
	require.NoError(t, err)
	return s
}

func TestRealAPIServerIsAStore(t *testing.T) {
	storetest.Test(t, func(t *testing.T) store.Store {
		t.Helper()
		return open(t, "sluice-checkpoint")
	})
}

// Kubernetes accepts the largest object, and a list has all of its pages.
func TestRealAPIServerHoldsTheLargestObject(t *testing.T) {
	s := open(t, "sluice-checkpoint")
	tag, err := s.Create(t.Context(), longest, make([]byte, MaxBytes))
	require.NoError(t, err)
	_, err = s.Put(t.Context(), longest, make([]byte, MaxBytes), tag)
	require.NoError(t, err)
	require.NoError(t, s.Delete(t.Context(), longest))

	var created []string
	for n := range 2*listLimit + 1 {
		created = append(created, fmt.Sprintf("page.%02d", n))
		_, err := s.Create(t.Context(), created[n], nil)
		require.NoError(t, err)
	}
	listed, err := s.List(t.Context(), "page.")
	require.NoError(t, err)
	require.Equal(t, created, listed)
	for _, name := range created {
		require.NoError(t, s.Delete(t.Context(), name))
	}
}

func TestRealAPIServerNamesTheRightsThatAreMissing(t *testing.T) {
	require.NoError(t, open(t, "sluice-checkpoint").Check(t.Context()))
	err := open(t, "default").Check(t.Context())
	for _, verb := range []string{"get", "list", "create", "update", "delete"} {
		require.ErrorContains(t, err, "may not "+verb+" configmaps in the namespace default")
	}
	_, err = open(t, "default").Create(t.Context(), "one", nil)
	require.ErrorContains(t, err, "forbidden")
}
