package kubernetes

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "github.com/kedacore/keda/v2/version" // pins the module whose definitions schema reads
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const infra = "../../../infra/kubernetes"

// scaledObject is what the checks read of KEDA's object. Its form is checked against KEDA's schema.
type scaledObject struct {
	Spec struct {
		ScaleTargetRef struct{ Name string }
		Triggers       []struct {
			AuthenticationRef struct{ Name string }
		}
	}
}

// kinds are the kinds that an installation may consist of. The checkpoint's objects are created by
// the producer or by an operator, and nothing here may delete them: so there is no Secret, no
// volume, and no Namespace, whose deletion would take all that is in it.
var kinds = map[string]func() any{
	"v1 ConfigMap":                            func() any { return &core.ConfigMap{} },
	"v1 Service":                              func() any { return &core.Service{} },
	"v1 ServiceAccount":                       func() any { return &core.ServiceAccount{} },
	"apps/v1 Deployment":                      func() any { return &apps.Deployment{} },
	"policy/v1 PodDisruptionBudget":           func() any { return &policy.PodDisruptionBudget{} },
	"networking.k8s.io/v1 NetworkPolicy":      func() any { return &networking.NetworkPolicy{} },
	"monitoring.coreos.com/v1 ServiceMonitor": func() any { return &monitoring.ServiceMonitor{} },
	"keda.sh/v1alpha1 ScaledObject":           func() any { return &map[string]any{} },
	"keda.sh/v1alpha1 TriggerAuthentication":  func() any { return &map[string]any{} },
}

type object struct {
	name, kind string
	text       []byte
	typed      any
}

// installations returns the folders that one can apply: the base alone, and each example.
func installations(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(infra, "examples", "*"))
	require.NoError(t, err)
	require.Len(t, found, 4)
	return append(found, filepath.Join(infra, "base"))
}

// render returns the objects of an installation, each decoded strictly: a field that its type does
// not have is an error, and so is a kind that is not in the list.
func render(t *testing.T, dir string) []object {
	t.Helper()
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	require.NoError(t, err)
	var objects []object
	for _, r := range rendered.Resources() {
		text, err := r.AsYAML()
		require.NoError(t, err)
		o := object{name: r.GetName(), kind: r.GetKind(), text: text}
		typed, known := kinds[r.GetApiVersion()+" "+r.GetKind()]
		require.True(t, known, "%s %s is of a kind that an installation may not have", r.GetKind(), r.GetName())
		o.typed = typed()
		require.NoError(t, yaml.UnmarshalStrict(text, o.typed), "%s %s:\n%s", r.GetKind(), r.GetName(), text)
		if strings.HasPrefix(r.GetApiVersion(), "keda.sh/") {
			require.NoError(t, schema(t, r.GetKind()).Validate(*o.typed.(*map[string]any)), "%s %s:\n%s", r.GetKind(), r.GetName(), text)
		}
		objects = append(objects, o)
	}
	return objects
}

// schema returns the schema with which an API server checks an object of KEDA, from the definition
// in KEDA's module, except that it refuses fields that it does not name. KEDA's Go types would need
// 487 packages more, and check less.
func schema(t *testing.T, kind string) *jsonschema.Schema {
	t.Helper()
	var definition struct {
		Spec struct {
			Versions []struct {
				Name   string
				Schema struct{ OpenAPIV3Schema map[string]any }
			}
		}
	}
	readYAML(t, definitionOf(t, kind), &definition)
	require.Len(t, definition.Spec.Versions, 1)
	require.Equal(t, "v1alpha1", definition.Spec.Versions[0].Name)
	whole := definition.Spec.Versions[0].Schema.OpenAPIV3Schema
	properties := whole["properties"].(map[string]any)
	properties["metadata"] = map[string]any{"type": "object"} // which the type of every object has
	refuseOthers(whole)
	properties["metadata"].(map[string]any)["additionalProperties"] = true
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("schema.json", whole))
	return c.MustCompile("schema.json")
}

// definitionOf returns the file with KEDA's definition of a kind.
func definitionOf(t *testing.T, kind string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/kedacore/keda/v2")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	dir, err := cmd.Output()
	require.NoError(t, err)
	matches, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "config", "crd", "bases", "keda.sh_"+strings.ToLower(kind)+"s.yaml"))
	require.NoError(t, err)
	require.Len(t, matches, 1)
	return matches[0]
}

// refuseOthers makes each schema that lists properties refuse all others, as the API server does
// with strict validation.
func refuseOthers(schema map[string]any) {
	if properties, ok := schema["properties"].(map[string]any); ok {
		if schema["x-kubernetes-preserve-unknown-fields"] != true {
			schema["additionalProperties"] = false
		}
		for _, property := range properties {
			refuseOthers(property.(map[string]any))
		}
	}
	for _, within := range []string{"items", "additionalProperties"} {
		if inner, ok := schema[within].(map[string]any); ok {
			refuseOthers(inner)
		}
	}
}

// only returns the objects of one type, by name.
func only[T any](objects []object) map[string]*T {
	found := map[string]*T{}
	for _, o := range objects {
		if typed, ok := o.typed.(*T); ok {
			found[o.name] = typed
		}
	}
	return found
}

// Every installation renders, into known kinds without unknown fields.
func TestEveryInstallationIsOfKnownFields(t *testing.T) {
	for _, dir := range installations(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			objects := render(t, dir)
			require.Len(t, only[apps.Deployment](objects), 2)
			require.Len(t, only[policy.PodDisruptionBudget](objects), 2)
			require.Len(t, only[core.ServiceAccount](objects), 2)
			require.Len(t, only[core.ConfigMap](objects), 2)
			base := filepath.Base(dir) == "base"
			require.Len(t, only[monitoring.ServiceMonitor](objects), map[bool]int{true: 0, false: 1}[base])
			require.Len(t, only[networking.NetworkPolicy](objects), map[bool]int{true: 2, false: 3}[base])
			for _, o := range objects {
				require.NotContains(t, string(o.text), "ownerReferences", o.name)
				if !base {
					require.NotRegexp(t, `(?m): (NAMESPACE|TOPIC|SUBSCRIPTION)$|00000000-0000`, string(o.text), "%s: a placeholder of a component is left", o.name)
				}
			}
		})
	}
}

// What refers to another object by its name or its labels finds it.
func TestObjectsReferToOneAnother(t *testing.T) {
	for _, dir := range installations(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			objects := render(t, dir)
			deployments := only[apps.Deployment](objects)
			for name, d := range deployments {
				pod := d.Spec.Template
				require.Subset(t, pod.Labels, d.Spec.Selector.MatchLabels, name)
				require.Contains(t, only[core.ServiceAccount](objects), pod.Spec.ServiceAccountName)
				require.Contains(t, only[core.ConfigMap](objects), pod.Spec.Containers[0].EnvFrom[0].ConfigMapRef.Name)
				require.Equal(t, d.Spec.Selector.MatchLabels, only[policy.PodDisruptionBudget](objects)[name].Spec.Selector.MatchLabels)
				require.Equal(t, d.Spec.Selector.MatchLabels, only[networking.NetworkPolicy](objects)[name].Spec.PodSelector.MatchLabels)
				require.Len(t, pod.Spec.TopologySpreadConstraints, 2)
				for _, c := range pod.Spec.TopologySpreadConstraints {
					require.Equal(t, d.Spec.Selector.MatchLabels, c.LabelSelector.MatchLabels, name)
				}
			}
			for name, s := range only[core.Service](objects) {
				pod := deployments[name].Spec.Template
				require.Subset(t, pod.Labels, s.Spec.Selector)
				require.Equal(t, s.Spec.Ports[0].TargetPort.StrVal, pod.Spec.Containers[0].Ports[0].Name)
				for _, m := range only[monitoring.ServiceMonitor](objects) {
					require.Subset(t, s.Labels, m.Spec.Selector.MatchLabels)
					require.Equal(t, s.Spec.Ports[0].Name, m.Spec.Endpoints[0].Port)
				}
				metrics := only[networking.NetworkPolicy](objects)["sluice-metrics"]
				require.Subset(t, pod.Labels, metrics.Spec.PodSelector.MatchLabels)
				require.Equal(t, s.Spec.Ports[0].Port, metrics.Spec.Ingress[0].Ports[0].Port.IntVal)
			}
			for _, o := range objects {
				if o.kind != "ScaledObject" {
					continue
				}
				var scaled scaledObject
				require.NoError(t, yaml.Unmarshal(o.text, &scaled))
				require.Nil(t, deployments[scaled.Spec.ScaleTargetRef.Name].Spec.Replicas, "KEDA sets the replicas")
				require.True(t, slices.ContainsFunc(objects, func(a object) bool {
					return a.kind == "TriggerAuthentication" && a.name == scaled.Spec.Triggers[0].AuthenticationRef.Name
				}))
			}
		})
	}
}

// The pods keep to the strictest of the Pod Security Standards, "restricted", and to a read-only
// file system.
func TestPodsAreRestricted(t *testing.T) {
	for _, dir := range installations(t) {
		for name, d := range only[apps.Deployment](render(t, dir)) {
			pod := d.Spec.Template.Spec
			require.True(t, *pod.SecurityContext.RunAsNonRoot, name)
			require.Equal(t, core.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
			uses := filepath.Base(dir) == "aks-kubernetes" && name == "sluice-producer"
			require.Equal(t, uses, *pod.AutomountServiceAccountToken, "only the store Kubernetes uses the API")
			require.False(t, *pod.EnableServiceLinks)
			require.Empty(t, pod.Volumes)
			require.False(t, pod.HostNetwork || pod.HostPID || pod.HostIPC)
			for _, c := range pod.Containers {
				require.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
				require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
				require.Equal(t, []core.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
				require.Empty(t, c.SecurityContext.Capabilities.Add)
				require.Zero(t, c.Resources.Limits.Cpu().Value(), "a leader that is throttled misses heartbeats")
				require.Equal(t, c.Resources.Requests.Memory().Value(), c.Resources.Limits.Memory().Value())
			}
		}
	}
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into), path)
}
