package kubernetes

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	authorization "k8s.io/api/authorization/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

const namespace = "shop"

// standIn answers as an API server does that has the namespace [namespace]: its ConfigMaps, and
// which rights a user has. It is stricter: it reads nothing from a cache, and a page of a list has
// at most two.
type standIn struct {
	*httptest.Server

	mu       sync.Mutex
	versions int                        // guarded by mu
	maps     map[string]*core.ConfigMap // guarded by mu
	before   func(*http.Request) int    // guarded by mu; a status other than 0 is the answer
	after    func(*http.Request) bool   // guarded by mu; false: the answer is lost
	requests []string                   // guarded by mu
	denied   string                     // guarded by mu; a verb
}

func serve(t *testing.T) *standIn {
	t.Helper()
	k := &standIn{maps: map[string]*core.ConfigMap{}}
	k.Server = httptest.NewServer(k)
	t.Cleanup(k.Close)
	return k
}

func (k *standIn) open(t *testing.T) *Store {
	t.Helper()
	s, err := Open(&rest.Config{Host: k.URL}, namespace)
	require.NoError(t, err)
	return s
}

// locked calls f while no request is handled.
func (k *standIn) locked(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
}

func (k *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.requests = append(k.requests, r.Method)
	if k.before != nil {
		if status := k.before(r); status != 0 {
			w.Header().Set("Retry-After", "1")
			reply(w, status, failure(status, meta.StatusReasonUnknown, "the server is overloaded"))
			return
		}
	}
	status, response := k.handle(r, body)
	if k.after != nil && !k.after(r) {
		panic(http.ErrAbortHandler)
	}
	reply(w, status, response)
}

func reply(w http.ResponseWriter, status int, response any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(response)
}

func failure(status int, reason meta.StatusReason, message string) meta.Status {
	return meta.Status{
		TypeMeta: meta.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   meta.StatusFailure, Code: int32(status), Reason: reason, Message: message,
	}
}

// handle returns the response to a request. The caller holds mu.
func (k *standIn) handle(r *http.Request, body []byte) (int, any) {
	if r.URL.Path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" {
		var review authorization.SelfSubjectAccessReview
		if err := json.Unmarshal(body, &review); err != nil {
			return 400, failure(400, meta.StatusReasonBadRequest, err.Error())
		}
		asked := review.Spec.ResourceAttributes
		review.Status.Allowed = asked.Namespace == namespace && asked.Resource == resource && asked.Verb != k.denied
		return 201, review
	}
	name, ok := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/"+namespace+"/configmaps")
	if !ok {
		return 404, failure(404, meta.StatusReasonNotFound, "namespaces not found")
	}
	name = strings.TrimPrefix(name, "/")
	var sent core.ConfigMap
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		if err := json.Unmarshal(body, &sent); err != nil {
			return 400, failure(400, meta.StatusReasonBadRequest, err.Error())
		}
		size := 0
		for _, value := range sent.Data {
			size += len(value)
		}
		for _, value := range sent.BinaryData {
			size += len(value)
		}
		if size > 1<<20 {
			return 422, failure(422, meta.StatusReasonInvalid, "Too long: may not be more than 1048576 bytes")
		}
	}
	kept := k.maps[name]
	switch {
	case r.Method == http.MethodGet && name == "":
		return 200, k.list(r)
	case r.Method == http.MethodPost && k.maps[sent.Name] != nil:
		return 409, failure(409, meta.StatusReasonAlreadyExists, "configmaps already exists")
	case r.Method == http.MethodPost:
		return 201, k.write(&sent)
	case kept == nil:
		return 404, failure(404, meta.StatusReasonNotFound, "configmaps not found")
	case r.Method == http.MethodGet && r.URL.Query().Get("resourceVersion") != "":
		return 400, failure(400, meta.StatusReasonBadRequest, "a read of an older version")
	case r.Method == http.MethodGet:
		return 200, kept
	case r.Method == http.MethodDelete:
		delete(k.maps, name)
		return 200, meta.Status{TypeMeta: meta.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: meta.StatusSuccess}
	case r.Method == http.MethodPut && sent.ResourceVersion != "" && sent.ResourceVersion != kept.ResourceVersion: // without one, it replaces any version
		return 409, failure(409, meta.StatusReasonConflict, "the object has been modified")
	case r.Method == http.MethodPut:
		return 200, k.write(&sent)
	}
	return 405, failure(405, meta.StatusReasonMethodNotAllowed, r.Method)
}

// write keeps a ConfigMap as a new version. The caller holds mu.
func (k *standIn) write(m *core.ConfigMap) *core.ConfigMap {
	k.versions++
	m.ResourceVersion = fmt.Sprint(k.versions)
	m.TypeMeta = meta.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}
	k.maps[m.Name] = m
	return m
}

// list returns a page of the ConfigMaps with a label. The caller holds mu.
func (k *standIn) list(r *http.Request) core.ConfigMapList {
	page := core.ConfigMapList{TypeMeta: meta.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}}
	key, value, _ := strings.Cut(r.URL.Query().Get("labelSelector"), "=")
	for _, name := range slices.Sorted(maps.Keys(k.maps)) {
		if m := k.maps[name]; m.Labels[key] != value || name <= r.URL.Query().Get("continue") {
			continue
		}
		if len(page.Items) == 2 {
			page.Continue = page.Items[1].Name
			break
		}
		page.Items = append(page.Items, *k.maps[name])
	}
	return page
}

// edit changes every ConfigMap, as a controller or a person does that adds an annotation.
func (k *standIn) edit() {
	for _, m := range k.maps {
		edited := m.DeepCopy()
		edited.Annotations = map[string]string{"example.com/seen": fmt.Sprint(k.versions)}
		k.write(edited)
	}
}
