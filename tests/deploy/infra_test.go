package deploy

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/sluice-cdc/sluice/tests/internal/bicep"
)

// deployed maps the templates that azd deploys itself to their parameter files.
var deployed = map[string]string{
	"main.bicep":          "infra/main.parameters.json",
	"app/producer.bicep":  "infra/app/producer.parameters.json",
	"app/projector.bicep": "infra/app/projector.parameters.json",
}

// byAzd are the variables that azd sets.
var byAzd = []string{"AZURE_ENV_NAME", "AZURE_LOCATION", "SERVICE_PRODUCER_IMAGE_NAME", "SERVICE_PROJECTOR_IMAGE_NAME"}

// A parameter file sets every parameter of its template, so that all can be set by azd env set, and
// no other one: azd would silently drop it. The defaults are those of the template.
func TestParameterFilesFitTheirTemplates(t *testing.T) {
	for path, parameters := range deployed {
		values, declared := parameterFile(t, parameters), map[string]bool{}
		for _, p := range template(t, path).All("param") {
			declared[p.Name] = true
			if p.HasValue {
				require.Equal(t, p.Value.Text, fill(values[p.Name], nil), "%s: %s", path, p.Name)
			}
		}
		require.Equal(t, sorted(declared), sorted(values), parameters)
	}
}

// userVariable is a variable that the user sets, with its default.
type userVariable struct {
	name, standard string
	secret         bool
}

// variablesToSet returns the variables of the parameter files that come neither from azd nor from
// an output of main.bicep.
func variablesToSet(t *testing.T) map[userVariable]bool {
	t.Helper()
	outputs := map[string]bool{}
	for _, output := range template(t, "main.bicep").All("output") {
		outputs[output.Name] = true
	}
	found := map[userVariable]bool{}
	for path, parameters := range deployed {
		for name, value := range parameterFile(t, parameters) {
			m := variable.FindStringSubmatch(value)
			require.NotNil(t, m, "%s: %s is not a variable", path, name)
			if !slices.Contains(byAzd, m[1]) && (!outputs[m[1]] || path == "main.bicep") {
				found[userVariable{m[1], m[2], find(t, path, "param", name).Secure()}] = true
			}
		}
	}
	return found
}

// Every variable that the user sets is in the README's table with its default, and without a
// default it is checked before provisioning.
func TestTheReadmeListsEveryVariable(t *testing.T) {
	readme := read(t, "infra/README.md")
	for v := range variablesToSet(t) {
		row := "\n| `" + v.name + "` | `" + v.standard + "` | "
		if v.standard == "" {
			row = "\n| `" + v.name + "` | | "
		}
		require.True(t, strings.Contains(readme, row), "%s is the user's to set: infra/README.md needs a row of it with the default %q", v.name, v.standard)
	}
}

// azd treats an empty value as a missing one. If the parameter has no default either, azd asks for
// it, or fails if it cannot ask. An output is empty if its value is: of topic and queue one always
// is.
func TestParametersThatMayBeEmptyHaveADefault(t *testing.T) {
	empty := map[string]bool{}
	for _, output := range template(t, "modules/servicebus.bicep").All("output") {
		if strings.HasSuffix(output.Value.Text, ": ''") || strings.Contains(output.Value.Text, "? ''") {
			empty["resources.outputs."+output.Name] = true
		}
	}
	require.Len(t, empty, 3, "topic, subscription and queue")
	for _, output := range template(t, "main.bicep").All("output") {
		if !empty[strings.ReplaceAll(output.Value.Text, " ", "")] {
			continue
		}
		used := 0
		for path, parameters := range deployed {
			for name, value := range parameterFile(t, parameters) {
				if value == "${"+output.Name+"}" {
					used++
					require.True(t, find(t, path, "param", name).HasValue, "%s: %s needs the default '': %s may be empty", path, name, output.Name)
				}
			}
		}
		require.NotZero(t, used, "%s is not used", output.Name)
	}
}

// What can be set by azd env set can be set for the workflow as well: a variable that the workflow
// does not pass on would silently fall back to its default with the first push. azd pipeline config
// sets the variables that azure.yaml lists, and no others.
func TestTheWorkflowPassesEveryVariableOn(t *testing.T) {
	workflow := read(t, ".github/workflows/azure-dev.yml")
	var plain, secret []string
	for v := range variablesToSet(t) {
		if v.secret {
			secret = append(secret, v.name)
			require.Contains(t, workflow, fmt.Sprintf("\n          %s: ${{ secrets.%s }}\n", v.name, v.name))
		} else {
			plain = append(plain, v.name)
			require.Contains(t, workflow, fmt.Sprintf("\n  %s: ${{ vars.%s }}\n", v.name, v.name))
		}
	}
	var p project
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "azure.yaml")), &p))
	require.Equal(t, "github", p.Pipeline.Provider)
	require.ElementsMatch(t, plain, p.Pipeline.Variables)
	require.ElementsMatch(t, secret, p.Pipeline.Secrets)
}

// A module gets every parameter that has no default, and none that it does not declare.
func TestModulesGetTheirParameters(t *testing.T) {
	for file, m := range declared(t, "module") {
		callee := template(t, path.Join(path.Dir(file), m.Type))
		given := map[string]bool{}
		for _, field := range m.Value.At("params").Fields {
			given[field.Name] = true
			_, known := callee.Find("param", field.Name)
			require.True(t, known, "%s: module %s has no parameter %s", file, m.Name, field.Name)
		}
		for _, p := range callee.All("param") {
			require.True(t, p.HasValue || given[p.Name], "%s: module %s needs %s", file, m.Name, p.Name)
		}
	}
}

// No output contains a secret: azd writes outputs to a file, and Azure keeps them with the
// deployment for every reader.
func TestOutputsContainNoSecrets(t *testing.T) {
	for path, f := range templates(t) {
		for _, output := range f.All("output") {
			for _, p := range f.All("param") {
				if p.Secure() {
					require.NotContains(t, strings.Fields(output.Value.Text), p.Name, "%s: output %s", path, output.Name)
				}
			}
			for _, way := range []string{"listKeys", "listSecrets", "connectionString", "sharedKey", "password"} {
				require.NotContains(t, output.Value.Text, way, "%s: output %s", path, output.Name)
			}
		}
		for _, p := range f.All("param") {
			secret := strings.HasSuffix(p.Name, "MongoUri") || strings.Contains(strings.ToLower(p.Name), "password")
			require.Equal(t, secret, p.Secure(), "%s: parameter %s", path, p.Name)
		}
		require.NotContains(t, read(t, "infra/"+path), "listKeys", "%s: nothing here needs a key", path)
	}
}

// Every resource that can have tags has those of the environment. Otherwise azd down would leave it
// behind and its costs could not be attributed.
func TestEverythingIsTagged(t *testing.T) {
	tagless := []string{ // children and extensions, which have none
		"Microsoft.Authorization/roleAssignments", "Microsoft.Authorization/locks", "Microsoft.Consumption/budgets", "Microsoft.Network/privateEndpoints/privateDnsZoneGroups", "Microsoft.Insights/diagnosticSettings",
		"Microsoft.Storage/storageAccounts/blobServices", "Microsoft.Storage/storageAccounts/managementPolicies",
		"Microsoft.Storage/storageAccounts/blobServices/containers",
		"Microsoft.ServiceBus/namespaces/topics", "Microsoft.ServiceBus/namespaces/topics/subscriptions", "Microsoft.ServiceBus/namespaces/queues",
		"Microsoft.DocumentDB/mongoClusters/firewallRules",
	}
	for path, r := range declared(t, "resource") {
		if _, tagged := r.Value.Field("tags"); !tagged && !r.Existing {
			require.Contains(t, tagless, r.Kind(), "%s: %s", path, r.Name)
		}
	}
	for _, s := range services {
		found := map[string]string{}
		appOf(t, s.name).Value.At("tags").Walk(func(_ []string, v bicep.Value) {
			for _, tag := range v.Fields {
				found[tag.Name] = tag.Value.Text
			}
		})
		require.Equal(t, s.name, found["azd-service-name"], "azd finds the app by its tag")
		require.Contains(t, found, "azd-env-name")
	}
}

// Identities replace keys everywhere.
func TestLocalAuthenticationIsOff(t *testing.T) {
	for _, c := range []struct {
		path, resource string
		field          string // below properties
		want           string
	}{
		{"modules/servicebus.bicep", "namespace", "disableLocalAuth", "true"},
		{"modules/servicebus.bicep", "namespace", "minimumTlsVersion", "1.2"},
		{"modules/storage.bicep", "account", "allowSharedKeyAccess", "false"},
		{"modules/storage.bicep", "account", "allowBlobPublicAccess", "false"},
		{"modules/storage.bicep", "account", "minimumTlsVersion", "TLS1_2"},
		{"modules/registry.bicep", "registry", "adminUserEnabled", "false"},
		{"modules/keyvault.bicep", "vault", "enableRbacAuthorization", "true"},
		{"modules/monitoring.bicep", "workspace", "features", "{ disableLocalAuth : true }"},
	} {
		value := find(t, c.path, "resource", c.resource).Value.At("properties", c.field)
		require.Equal(t, c.want, value.Text, "%s: %s", c.path, c.field)
	}
}

// azd passes an empty text for a variable that is not set. A parameter without a default refuses it
// before anything is created: with an empty MONGODB_DATABASE the stream would have another name.
func TestRequiredParametersRefuseEmptyTexts(t *testing.T) {
	for name, most := range map[string]int{"main.bicep": 2, "app/producer.bicep": 19, "app/projector.bicep": 23} {
		required := 0
		for _, d := range template(t, name).All("param") {
			if d.Type != "string" || d.HasValue {
				continue
			}
			required++
			require.Contains(t, d.Decorators, "minLength ( 1 )", "%s:%d: %s", name, d.Line, d.Name)
		}
		require.Equal(t, most, required, name)
	}
}
