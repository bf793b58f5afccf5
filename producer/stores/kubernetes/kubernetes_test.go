package kubernetes

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/sluice-cdc/sluice/producer/store"
	"github.com/sluice-cdc/sluice/producer/store/storetest"
)

func TestKubernetesIsAStore(t *testing.T) {
	t.Parallel()
	k := serve(t)
	storetest.Test(t, func(t *testing.T) store.Store {
		t.Helper()
		return k.open(t)
	})
}

// What others change in a ConfigMap is no write of the store: the tag stays, and a put that meets
// the change succeeds. What the others added stays as well.
func TestAnAnnotationIsNoWrite(t *testing.T) {
	t.Parallel()
	k := serve(t)
	s := k.open(t)
	tag, err := s.Create(t.Context(), "one", []byte("first"))
	require.NoError(t, err)
	edits := 3
	k.locked(func() {
		k.edit()
		k.before = func(r *http.Request) int {
			if r.Method == http.MethodPut && edits > 0 {
				edits--
				k.edit()
			}
			return 0
		}
	})
	found, err := s.Get(t.Context(), "one")
	require.NoError(t, err)
	require.Equal(t, tag, found.Tag)
	_, err = s.Put(t.Context(), "one", []byte("second"), tag)
	require.NoError(t, err)
	k.locked(func() {
		require.Zero(t, edits)
		require.NotEmpty(t, k.maps[objectName("one")].Annotations)
	})
	found, err = s.Get(t.Context(), "one")
	require.NoError(t, err)
	_, err = s.Put(t.Context(), "one", []byte("third"), tag)
	require.ErrorIs(t, err, store.ErrChanged)

	k.locked(func() { edits = 1000 })
	_, err = s.Put(t.Context(), "one", []byte("third"), found.Tag)
	require.ErrorContains(t, err, "the object has been modified")
	require.NotErrorIs(t, err, store.ErrChanged)
}

// A request is sent once. A second put after a lost response would be refused, and the election
// could not distinguish that from a write of another client; and a server that asks for a pause is
// asked again by the election, which knows how long it may wait.
func TestNoRequestIsRepeated(t *testing.T) {
	t.Parallel()
	k := serve(t)
	s := k.open(t)
	tag, err := s.Create(t.Context(), "one", []byte("first"))
	require.NoError(t, err)
	k.locked(func() { k.requests, k.after = nil, func(r *http.Request) bool { return r.Method != http.MethodPut } })
	_, err = s.Put(t.Context(), "one", []byte("second"), tag)
	require.Error(t, err)
	require.NotErrorIs(t, err, store.ErrChanged)
	require.NotErrorIs(t, err, store.ErrNotFound)
	k.locked(func() { require.Equal(t, []string{"GET", "PUT"}, k.requests) })

	for _, status := range []int{429, 500, 503, 504} {
		k.locked(func() { k.requests, k.before = nil, func(*http.Request) int { return status } })
		_, err = s.Get(t.Context(), "one")
		require.Error(t, err)
		require.NotErrorIs(t, err, store.ErrNotFound)
		k.locked(func() { require.Equal(t, []string{"GET"}, k.requests, status) })
	}
}

// The ConfigMaps have no owner and no label that an installation tool deletes by.
func TestG4NothingElseDeletesACheckpoint(t *testing.T) {
	t.Parallel()
	k := serve(t)
	_, err := k.open(t).Create(t.Context(), "shop.events.json", []byte("{}"))
	require.NoError(t, err)
	k.locked(func() {
		for name, m := range k.maps {
			require.Equal(t, meta.ObjectMeta{Name: name, ResourceVersion: "1", Labels: map[string]string{Label: "true"}}, m.ObjectMeta)
		}
	})
}

func TestG6AnObjectThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	k := serve(t)
	s := k.open(t)
	tag, err := s.Create(t.Context(), longest, make([]byte, MaxBytes))
	require.NoError(t, err)
	_, err = s.Put(t.Context(), longest, make([]byte, MaxBytes), tag)
	require.NoError(t, err)
	_, err = s.Put(t.Context(), longest, make([]byte, MaxBytes+1), tag)
	require.ErrorIs(t, err, store.ErrTooLarge)
	_, err = s.Create(t.Context(), "large", make([]byte, MaxBytes+1))
	require.ErrorIs(t, err, store.ErrTooLarge)
}

// longest is a name of 320 bytes.
var longest = string(make([]byte, 320))

// A ConfigMap that an operator has changed is not read as an empty record.
func TestG6AChangedConfigMapIsNoRecord(t *testing.T) {
	t.Parallel()
	k := serve(t)
	s := k.open(t)
	tag, err := s.Create(t.Context(), "one", []byte("first"))
	require.NoError(t, err)
	k.locked(func() { k.maps[objectName("one")].Data = nil })
	_, err = s.Get(t.Context(), "one")
	require.ErrorContains(t, err, "lacks its name or its tag")
	_, err = s.Put(t.Context(), "one", []byte("second"), tag)
	require.ErrorContains(t, err, "lacks its name or its tag")
}

func TestDoctorNamesTheRightsThatAreMissing(t *testing.T) {
	t.Parallel()
	k := serve(t)
	s := k.open(t)
	require.NoError(t, s.Check(t.Context()))
	k.locked(func() { k.denied = "update" })
	require.ErrorContains(t, s.Check(t.Context()), "may not update configmaps in the namespace shop")
}

// The settings: a kubeconfig outside of a cluster, whose context or a variable names the namespace.
func TestTheStoreIsFoundInTheEnvironment(t *testing.T) {
	_, err := FromEnvironment("redis")
	require.ErrorContains(t, err, `CHECKPOINT_STORE: this program has no store "redis"`)

	file := filepath.Join(t.TempDir(), "kubeconfig")
	t.Setenv("KUBECONFIG", file)
	_, err = FromEnvironment(Name)
	require.ErrorContains(t, err, "CHECKPOINT_STORE=kubernetes: this process is in no pod")

	k := serve(t)
	require.NoError(t, clientcmd.WriteToFile(api.Config{
		CurrentContext: "c",
		Contexts:       map[string]*api.Context{"c": {Cluster: "k", AuthInfo: "u", Namespace: namespace}},
		Clusters:       map[string]*api.Cluster{"k": {Server: k.URL}},
		AuthInfos:      map[string]*api.AuthInfo{"u": {}},
	}, file))
	s, err := FromEnvironment(Name)
	require.NoError(t, err)
	_, err = s.Create(t.Context(), "one", nil)
	require.NoError(t, err)

	t.Setenv(NamespaceVariable, "elsewhere")
	s, err = FromEnvironment(Name)
	require.NoError(t, err)
	_, err = s.Create(t.Context(), "one", nil)
	require.ErrorContains(t, err, "namespaces not found")
	require.NotErrorIs(t, err, store.ErrChanged, "a namespace that does not exist is no object that does")
}
