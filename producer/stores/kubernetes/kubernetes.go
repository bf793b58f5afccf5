// Package kubernetes is a checkpoint store in the API of Kubernetes: one ConfigMap for each object,
// in one namespace. The ConfigMaps have no owner and no label of an installation tool, so that
// nothing but their own names deletes them.
//
// The tag of an object is a field of its ConfigMap. The resourceVersion only ensures that a put
// replaces the version that it has compared: the API server also changes it for every annotation
// that a controller or an operator adds. Every read is one of the newest version, which the API
// server confirms with etcd.
package kubernetes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	authorization "k8s.io/api/authorization/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sluice-cdc/sluice/producer/store"
)

const (
	// Name is the value of CHECKPOINT_STORE for this store.
	Name = "kubernetes"
	// NamespaceVariable is the environment variable with the namespace of the ConfigMaps. Without
	// it, it is the namespace of the pod, or that of the kubeconfig's context.
	NamespaceVariable = "CHECKPOINT_KUBERNETES_NAMESPACE"
	// Label is on every ConfigMap of this store.
	Label = "sluice-checkpoint"
	// MaxBytes is the size of the largest object. Kubernetes permits 1 MiB in a ConfigMap, with its
	// name and tag.
	MaxBytes = 1<<20 - 1024
)

// The keys of a ConfigMap.
const (
	nameKey = "name"
	tagKey  = "tag"
	dataKey = "data"
)

const (
	resource  = "configmaps"
	reviews   = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	listLimit = 20 // of up to 1 MiB each
	// maxConflicts is how often a put is tried whose ConfigMap is changed by something else
	// meanwhile.
	maxConflicts = 10
)

// Store holds objects in one namespace of a cluster.
type Store struct {
	api       rest.Interface
	namespace string
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Checker = (*Store)(nil)
)

// FromEnvironment opens the store that CHECKPOINT_STORE=kubernetes names: with the pod's service
// account, or outside of a cluster with the kubeconfig that KUBECONFIG names. It is a value for
// producer.Options.Store.
func FromEnvironment(name string) (store.Store, error) {
	if name != Name {
		return nil, fmt.Errorf("CHECKPOINT_STORE: this program has no store %q; it has blob, mongodb and %s", name, Name)
	}
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{})
	config, err := loaded.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("CHECKPOINT_STORE=kubernetes: this process is in no pod with a token of its service account, and KUBECONFIG names no usable file: %w", err)
	}
	namespace := os.Getenv(NamespaceVariable)
	if namespace == "" {
		if namespace, _, err = loaded.Namespace(); err != nil {
			return nil, fmt.Errorf("%s: is not set, and no namespace was found: %w", NamespaceVariable, err)
		}
	}
	return Open(config, namespace)
}

// Open returns the store in a namespace of the cluster of a configuration, which it copies. Nothing
// is sent before the first request.
func Open(config *rest.Config, namespace string) (*Store, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.RateLimiter = -1, nil // a heartbeat must not wait for other requests of this client
	config.WarningHandler = rest.NoWarnings{}
	// A connection to an API server that is lost ends with the first request that it fails. One of
	// HTTP/2 would be used for 45 s more, until its ping fails.
	config.NextProtos = []string{"http/1.1"}
	scheme := runtime.NewScheme()
	if err := errors.Join(core.AddToScheme(scheme), authorization.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	config.GroupVersion, config.APIPath = &core.SchemeGroupVersion, "/api"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("open the API of Kubernetes: %w", err)
	}
	return &Store{client, namespace}, nil
}

// objectName returns the name of the ConfigMap of an object, whose own name can be longer than
// Kubernetes permits and have any characters.
func objectName(name string) string {
	sum := sha256.Sum256([]byte(name))
	return Label + "-" + hex.EncodeToString(sum[:16])
}

// send sends a request once and decodes its response.
func send(ctx context.Context, r *rest.Request, into runtime.Object) error {
	return r.Resource(resource).MaxRetries(0).Do(ctx).Into(into)
}

func (s *Store) read(ctx context.Context, name string) (*core.ConfigMap, error) {
	var found core.ConfigMap
	err := send(ctx, s.api.Get().Namespace(s.namespace).Name(objectName(name)), &found)
	switch {
	case apierrors.IsNotFound(err):
		return nil, store.ErrNotFound
	case err != nil:
		return nil, err
	case found.Data[nameKey] != name || found.Data[tagKey] == "":
		return nil, fmt.Errorf("the ConfigMap %s is not the checkpoint's: it lacks its name or its tag", found.Name)
	}
	return &found, nil
}

// fill sets the content of an object.
func fill(m *core.ConfigMap, name string, data []byte) store.Tag {
	tag := store.NewTag()
	m.Data = map[string]string{nameKey: name, tagKey: string(tag)}
	m.BinaryData = map[string][]byte{dataKey: data}
	return tag
}

func tooLarge(data []byte) error {
	if len(data) > MaxBytes {
		return fmt.Errorf("%d bytes: %w", len(data), store.ErrTooLarge)
	}
	return nil
}

// Get implements [store.Store].
func (s *Store) Get(ctx context.Context, name string) (store.Object, error) {
	found, err := s.read(ctx, name)
	if err != nil {
		return store.Object{}, fmt.Errorf("get %s: %w", name, err)
	}
	return store.Object{Data: found.BinaryData[dataKey], Tag: store.Tag(found.Data[tagKey])}, nil
}

// Put implements [store.Store]. A put that is refused because something else in the ConfigMap has
// changed is repeated: nothing was written.
func (s *Store) Put(ctx context.Context, name string, data []byte, tag store.Tag) (store.Tag, error) {
	next, err := s.put(ctx, name, data, tag)
	for n := 1; n < maxConflicts && apierrors.IsConflict(err); n++ {
		next, err = s.put(ctx, name, data, tag)
	}
	if err != nil {
		return "", fmt.Errorf("put %s: %w", name, err)
	}
	return next, nil
}

func (s *Store) put(ctx context.Context, name string, data []byte, tag store.Tag) (store.Tag, error) {
	if err := tooLarge(data); err != nil {
		return "", err
	}
	m, err := s.read(ctx, name)
	if err != nil {
		return "", err
	}
	if m.Data[tagKey] != string(tag) {
		return "", store.ErrChanged
	}
	next := fill(m, name, data)
	err = send(ctx, s.api.Put().Namespace(s.namespace).Name(m.Name).Body(m), &core.ConfigMap{})
	if apierrors.IsNotFound(err) {
		err = store.ErrNotFound
	}
	return next, err
}

// Create implements [store.Store].
func (s *Store) Create(ctx context.Context, name string, data []byte) (store.Tag, error) {
	m := &core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: objectName(name), Labels: map[string]string{Label: "true"}}}
	tag := fill(m, name, data)
	err := tooLarge(data)
	if err == nil {
		err = send(ctx, s.api.Post().Namespace(s.namespace).Body(m), &core.ConfigMap{})
	}
	if apierrors.IsAlreadyExists(err) {
		err = store.ErrChanged
	}
	if err != nil {
		return "", fmt.Errorf("create %s: %w", name, err)
	}
	return tag, nil
}

// Delete implements [store.Store].
func (s *Store) Delete(ctx context.Context, name string) error {
	err := send(ctx, s.api.Delete().Namespace(s.namespace).Name(objectName(name)), &meta.Status{})
	if apierrors.IsNotFound(err) {
		err = store.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return nil
}

// List implements [store.Store].
func (s *Store) List(ctx context.Context, prefix string) (names []string, err error) {
	for next := ""; ; {
		var page core.ConfigMapList
		err := send(ctx, s.api.Get().Namespace(s.namespace).Param("labelSelector", Label+"=true").
			Param("limit", fmt.Sprint(listLimit)).Param("continue", next), &page)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", prefix, err)
		}
		for _, m := range page.Items {
			if name := m.Data[nameKey]; strings.HasPrefix(name, prefix) {
				names = append(names, name)
			}
		}
		if next = page.Continue; next == "" {
			slices.Sort(names)
			return names, nil
		}
	}
}

// Check returns an error that names each right that the service account lacks. The command doctor
// calls it.
func (s *Store) Check(ctx context.Context) error {
	var missing []error
	for _, verb := range []string{"get", "list", "create", "update", "delete"} {
		review := authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorization.ResourceAttributes{Namespace: s.namespace, Verb: verb, Resource: resource},
		}}
		if err := s.api.Post().AbsPath(reviews).Body(&review).MaxRetries(0).Do(ctx).Into(&review); err != nil {
			return fmt.Errorf("ask Kubernetes for the rights of this process: %w", err)
		}
		if !review.Status.Allowed {
			missing = append(missing, fmt.Errorf("may not %s %s in the namespace %s: bind the Role of infra/kubernetes/components/checkpoint", verb, resource, s.namespace))
		}
	}
	return errors.Join(missing...)
}
