package deploy

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/sluice-cdc/sluice/tests/internal/bicep"
)

// kubernetesObjects returns the objects of a file below infra/kubernetes by kind and name. Their
// form is checked in tests/deploy/kubernetes.
func kubernetesObjects(t *testing.T, path string) map[string]map[string]any {
	t.Helper()
	found := map[string]map[string]any{}
	d := yaml.NewDecoder(bytes.NewReader([]byte(read(t, "infra/kubernetes/"+path))))
	for {
		var o map[string]any
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err, path)
		found[o["kind"].(string)+" "+at(o, "metadata", "name").(string)] = o
	}
}

// at returns the value at a path of names and, in lists, numbers.
func at(o any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			o = o.(map[string]any)[p]
		case int:
			o = o.([]any)[p]
		}
	}
	return o
}

// kubernetesApp returns the Deployment of a service, and its container.
func kubernetesApp(t *testing.T, service string) (deployment map[string]any, container any) {
	t.Helper()
	deployment = kubernetesObjects(t, "base/"+service+".yaml")["Deployment sluice-"+service]
	require.NotNil(t, deployment)
	containers := at(deployment, "spec", "template", "spec", "containers").([]any)
	require.Len(t, containers, 1)
	require.Equal(t, service, at(containers[0], "name"))
	return deployment, containers[0]
}

func number(t *testing.T, v bicep.Value) int {
	t.Helper()
	n, err := strconv.Atoi(v.Text)
	require.NoError(t, err, "line %d", v.Line)
	return n
}

// The probes, the grace period and the resources of the two homes are the same.
func TestKubernetesRunsTheServicesAsContainerAppsDo(t *testing.T) {
	for _, s := range services {
		t.Run(s.name, func(t *testing.T) {
			deployment, container := kubernetesApp(t, s.name)
			app := appOf(t, s.name).Value.At("properties", "template")
			require.Equal(t, number(t, app.At("terminationGracePeriodSeconds")),
				at(deployment, "spec", "template", "spec", "terminationGracePeriodSeconds"))

			probes := map[string]any{}
			app.Walk(func(path []string, v bicep.Value) {
				if strings.Join(path, ".") != "containers.probes" || v.Kind != bicep.Object {
					return
				}
				kind, found := v.Field("type")
				if !found {
					return
				}
				probe := map[string]any{}
				for _, f := range v.Fields {
					switch f.Name {
					case "type":
					case "httpGet":
						probe[f.Name] = map[string]any{"path": f.Value.At("path").Text, "port": number(t, f.Value.At("port"))}
					default:
						probe[f.Name] = number(t, f.Value)
					}
				}
				probes[strings.ToLower(kind.Text)+"Probe"] = probe
			})
			require.Len(t, probes, 3)
			for name, want := range probes {
				require.Equal(t, want, at(container, name), name)
			}

			small := find(t, "app/"+s.name+".bicep", "var", "sizes").Value.At("small")
			cores, err := strconv.ParseFloat(small.At("cpu").Text, 64)
			require.NoError(t, err)
			gibibytes, err := strconv.ParseFloat(strings.TrimSuffix(small.At("memory").Text, "Gi"), 64)
			require.NoError(t, err)
			require.Equal(t, strconv.Itoa(int(cores*1000))+"m", at(container, "resources", "requests", "cpu"))
			require.Equal(t, strconv.Itoa(int(gibibytes*1024))+"Mi", at(container, "resources", "limits", "memory"))
			require.Equal(t, small.At("limit").Text, kubernetesSettings(t, s.name, "base")["GOMEMLIMIT"])

			user := at(deployment, "spec", "template", "spec", "securityContext")
			require.Contains(t, read(t, s.name+"/Dockerfile"), "\nUSER "+strconv.Itoa(at(user, "runAsUser").(int))+":"+strconv.Itoa(at(user, "runAsGroup").(int))+"\n")
		})
	}
}

// The producer has as many replicas, and the projector is scaled by the same numbers.
func TestKubernetesScalesAsContainerAppsDoes(t *testing.T) {
	producer, _ := kubernetesApp(t, "producer")
	require.Equal(t, number(t, appOf(t, "producer").Value.At("properties", "template", "scale", "minReplicas")), at(producer, "spec", "replicas"))

	scaled := kubernetesObjects(t, "components/keda/scaling.yaml")["ScaledObject sluice-projector"]
	scale := appOf(t, "projector").Value.At("properties", "template", "scale")
	for _, name := range []string{"pollingInterval", "cooldownPeriod"} {
		require.Equal(t, number(t, scale.At(name)), at(scaled, "spec", name), name)
	}
	defaults := map[string]string{}
	for _, d := range template(t, "app/projector.bicep").All("param") {
		defaults[d.Name] = d.Value.Text
	}
	given := parameterFile(t, "infra/app/projector.parameters.json")
	for name, got := range map[string]any{
		"minReplicas":        at(scaled, "spec", "minReplicaCount"),
		"maxReplicas":        at(scaled, "spec", "maxReplicaCount"),
		"messagesPerReplica": at(scaled, "spec", "triggers", 0, "metadata", "messageCount"),
	} {
		if n, isNumber := got.(int); isNumber {
			got = strconv.Itoa(n)
		}
		require.Equal(t, defaults[name], got, name)
		require.Equal(t, defaults[name], fill(given[name], nil), "%s: what azd sets by default", name)
	}
	kind := ""
	scale.Walk(func(path []string, v bicep.Value) {
		if strings.Join(path, ".") == "rules.custom.type" {
			kind = v.Text
		}
	})
	require.Equal(t, kind, at(scaled, "spec", "triggers", 0, "type"))
}

// kubernetesSettings returns the settings that a folder gives to a service.
func kubernetesSettings(t *testing.T, service, folder string) map[string]string {
	t.Helper()
	var k struct {
		ConfigMapGenerator []struct {
			Name     string
			Literals []string
		} `yaml:"configMapGenerator"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "infra/kubernetes/"+folder+"/kustomization.yaml")), &k))
	found := map[string]string{}
	for _, g := range k.ConfigMapGenerator {
		for _, literal := range g.Literals {
			if name, value, ok := strings.Cut(literal, "="); g.Name == "sluice-"+service {
				require.True(t, ok, literal)
				require.NotContains(t, found, name)
				found[name] = value
			}
		}
	}
	require.NotEmpty(t, found)
	return found
}

// kubernetesSecrets are the settings that an operator puts into the Secrets of an example.
var kubernetesSecrets = map[string]map[string]string{
	"aks-blob":          {},
	"aks-kubernetes":    nil,
	"aks-mongodb":       {"CHECKPOINT_MONGODB_URI": "mongodb://u:p@other.example/"},
	"on-premises-redis": {"CHECKPOINT_REDIS_URL": "redis://u:p@redis.example:6379/0"},
}

// The settings of the base are those of Container Apps, and the services accept the settings of
// each example: the loaded configuration has no unknown and no missing one.
func TestTheServicesAcceptWhatKubernetesSets(t *testing.T) {
	examples, err := os.ReadDir(filepath.Join(root, "infra/kubernetes/examples"))
	require.NoError(t, err)
	require.Len(t, examples, len(kubernetesSecrets))
	for _, s := range services {
		base, deployed := kubernetesSettings(t, s.name, "base"), containerEnv(t, s.name)
		for name, value := range base {
			if name == "AZURE_TOKEN_CREDENTIALS" || name == "GOMEMLIMIT" {
				continue
			}
			require.Equal(t, deployed[name].Text, value, name)
		}
		for _, example := range examples {
			t.Run(s.name+" "+example.Name(), func(t *testing.T) {
				secrets, known := kubernetesSecrets[example.Name()]
				require.True(t, known)
				all, settings := maps.Clone(base), settingsOf(s.config)
				maps.Copy(all, kubernetesSettings(t, s.name, "examples/"+example.Name()))
				for name := range all {
					_, isSetting := settings[name]
					require.True(t, isSetting || notOurs[name] != "", "%s is no setting of the %s", name, s.name)
				}
				all["MONGODB_URI"] = "mongodb://u:p@db.example/"
				if s.name == "producer" {
					maps.Copy(all, secrets)
				}
				s.accepts(t, all)
				page := read(t, "infra/kubernetes/README.md") + read(t, "infra/kubernetes/examples/"+example.Name()+"/kustomization.yaml")
				for name := range secrets {
					require.Contains(t, page, name)
				}
				require.Equal(t, map[string]string{"aks-blob": "", "aks-kubernetes": "kubernetes", "aks-mongodb": "mongodb", "on-premises-redis": "redis"}[example.Name()],
					cmp.Or(kubernetesSettings(t, "producer", "examples/"+example.Name())["CHECKPOINT_STORE"], ""))
			})
		}
	}
}
