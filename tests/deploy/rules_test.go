package deploy

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// contradicts lists what breaks a rule of Azure in the templates by intent: the text of a file. If
// the text is gone, the rule must be enforced again.
var contradicts = map[string][2]string{
	"Azure.Storage.SoftDelete":            {"modules/storage.bicep", "deleteRetentionPolicy: { enabled: false }"},
	"Azure.Storage.Firewall":              {"modules/storage.bicep", "defaultAction: privateNetwork ? 'Deny' : 'Allow'"},
	"Azure.KeyVault.Firewall":             {"modules/keyvault.bicep", "defaultAction: privateNetwork ? 'Deny' : 'Allow'"},
	"Azure.ContainerApp.PublicAccess":     {"modules/environment.bicep", "vnetConfiguration: empty(subnetId) ? null"},
	"Azure.ContainerApp.AvailabilityZone": {"modules/environment.bicep", "zoneRedundant: zoneRedundant && !empty(subnetId)"},
	"Azure.ACR.MinSku":                    {"modules/registry.bicep", "privateNetwork ? 'Premium' : 'Basic'"},
	"Azure.NSG.LateralTraversal":          {"modules/network.bicep", "properties: {}"},
}

// PSRule for Azure checks both networks. A rule is left out only for the written reason, and only
// as long as the templates break it by intent.
func TestLeftOutAzureRulesHaveReasons(t *testing.T) {
	reasoned := regexp.MustCompile(`^    - (Azure\.[A-Za-z.]+) # .{20,}$`)
	workflow := read(t, ".github/workflows/ci.yml")
	require.Contains(t, workflow, "option: infra/rules/${{ matrix.network }}.yaml")
	require.Contains(t, workflow, "network: [public, private]")
	for _, network := range []string{"public", "private"} {
		parameters := read(t, "infra/rules/"+network+".bicepparam")
		require.Equal(t, network == "private", strings.Contains(parameters, "param networkMode = 'private'"))

		text := read(t, "infra/rules/"+network+".yaml")
		var config struct {
			Input struct {
				PathIgnore []string `yaml:"pathIgnore"`
			}
			Rule struct{ Exclude []string }
		}
		require.NoError(t, yaml.Unmarshal([]byte(text), &config))
		require.Equal(t, []string{"**", "!infra/rules/" + network + ".bicepparam"}, config.Input.PathIgnore)
		require.NotEmpty(t, config.Rule.Exclude)
		var left []string
		_, list, _ := strings.Cut(text, "  exclude:\n")
		for line := range strings.Lines(list) {
			m := reasoned.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
			require.NotNil(t, m, "%s: no reason: %s", network, line)
			left = append(left, m[1])
			why, known := contradicts[m[1]]
			require.True(t, known, "%s: %s", network, m[1])
			require.Contains(t, read(t, "infra/"+why[0]), why[1], m[1])
			if strings.Contains(why[1], "privateNetwork ?") || strings.Contains(why[1], "subnetId") {
				require.Equal(t, "public", network, "%s: closed there", m[1])
			}
		}
		require.Equal(t, config.Rule.Exclude, left)
	}
}
