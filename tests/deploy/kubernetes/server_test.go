package kubernetes

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// apply sends an object to the API server as `kubectl apply --server-side` does, and returns the
// response and its warnings.
func apply(t *testing.T, object []byte, query string) (status int, warnings []string, response string) {
	t.Helper()
	var o struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct{ Name, Namespace string }
	}
	require.NoError(t, yaml.Unmarshal(object, &o))
	path := "/apis/" + o.APIVersion
	if o.APIVersion == "v1" {
		path = "/api/v1"
	}
	if o.Metadata.Namespace != "" {
		path += "/namespaces/" + o.Metadata.Namespace
	}
	plural := strings.ToLower(o.Kind) + "s"
	if before, ok := strings.CutSuffix(plural, "ys"); ok {
		plural = before + "ies"
	}
	url := fmt.Sprintf("%s%s/%s/%s?fieldManager=test&fieldValidation=Strict&%s", os.Getenv("KUBERNETES_API"), path, plural, o.Metadata.Name, query)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, url, bytes.NewReader(object))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/apply-patch+yaml")
	r.Header.Set("Authorization", "Bearer administrator")
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // a server of this machine, for this test
	answer, err := client.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, answer.Header.Values("Warning"), string(body)
}

// A real API server accepts every object of every installation, in a namespace that warns of pods
// which are not restricted. It has the definitions of KEDA and of the Prometheus operator.
func TestRealAPIServerAcceptsEveryInstallation(t *testing.T) {
	if os.Getenv("KUBERNETES_API") == "" {
		t.Skip("KUBERNETES_API is not set (scripts/kubernetes.sh)")
	}
	for _, name := range []string{"sluice", "sluice-checkpoint"} {
		status, _, response := apply(t, fmt.Appendf(nil, "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n"+
			"  labels: { pod-security.kubernetes.io/warn: restricted }\n", name), "")
		require.Less(t, status, 300, response)
	}
	for _, definition := range definitions(t) {
		status, _, response := apply(t, definition, "force=true")
		require.Less(t, status, 300, response)
	}
	dirs := append(installations(t), filepath.Join(infra, "checkpoint"))
	for _, dir := range dirs {
		query := "dryRun=All"
		if filepath.Base(dir) == "checkpoint" {
			query = "" // the store's own tests need the rights
		}
		if filepath.Base(dir) == "base" {
			continue // has no namespace and placeholders
		}
		t.Run(filepath.Base(dir), func(t *testing.T) {
			rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
			require.NoError(t, err)
			for _, r := range rendered.Resources() {
				text, err := r.AsYAML()
				require.NoError(t, err)
				var status int
				var warnings []string
				var response string
				require.Eventually(t, func() bool { // a definition is served a moment after it was accepted
					status, warnings, response = apply(t, text, query)
					return status != http.StatusNotFound
				}, 30*time.Second, 100*time.Millisecond, "%s", text)
				require.Less(t, status, 300, "%s\n%s", text, response)
				require.Empty(t, warnings, "%s", text)
			}
		})
	}
	status, _, response := apply(t, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: { name: wrong, namespace: sluice }\nunknown: 1\n"), "dryRun=All")
	require.GreaterOrEqual(t, status, 400, "a field that does not exist is refused")
	require.Contains(t, response, "field not declared in schema")
}

// definitions returns the definitions of the custom resources: KEDA's are in its module. The one of
// ServiceMonitor is in none, so it is defined here as an object of any content.
func definitions(t *testing.T) [][]byte {
	t.Helper()
	found := [][]byte{[]byte(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: servicemonitors.monitoring.coreos.com }
spec:
  group: monitoring.coreos.com
  names: { kind: ServiceMonitor, listKind: ServiceMonitorList, plural: servicemonitors, singular: servicemonitor }
  scope: Namespaced
  versions:
    - { name: v1, served: true, storage: true, schema: { openAPIV3Schema: { type: object, x-kubernetes-preserve-unknown-fields: true } } }
`)}
	for _, kind := range []string{"ScaledObject", "TriggerAuthentication"} {
		text, err := os.ReadFile(definitionOf(t, kind))
		require.NoError(t, err)
		found = append(found, text)
	}
	return found
}
