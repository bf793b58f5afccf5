package clients

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// entities are what the scenarios of Service Bus use.
func entities() *servicebus.Config {
	out := servicebus.Outbound{LockDuration: 30 * time.Second, MaxDeliveryCount: 10}
	withSessions := out
	withSessions.RequiresSession = true
	return &servicebus.Config{
		Queues: []servicebus.Queue{
			{Name: "plain", Outbound: out},
			{Name: "sessions", Outbound: withSessions},
			{Name: "unique", Outbound: out, Inbound: servicebus.Inbound{RequiresDuplicateDetection: true, DuplicateDetectionWindow: 5 * time.Minute}},
		},
		Topics: []servicebus.Topic{{Name: "news", Subscriptions: []servicebus.Subscription{{Name: "all", Outbound: out}}}},
	}
}

// refused are the scenarios of which the embedded servers say that they do not do this.
var refused = map[string][]string{}

// TestJavaScript runs the scenarios with @azure/service-bus, mongodb and @azure/storage-blob.
func TestJavaScript(t *testing.T) {
	t.Parallel()
	scenarios(t, javaScript(t), map[string]string{
		"servicebus": "@azure/service-bus 7.9.5", "mongodb": "mongodb 7.9.0", "blob": "@azure/storage-blob 12.34.0",
		"administration": "@azure/service-bus 7.9.5",
	})
}

// TestPython runs them with azure-servicebus, pymongo and azure-storage-blob.
func TestPython(t *testing.T) {
	t.Parallel()
	scenarios(t, python(t), map[string]string{
		"servicebus": "azure-servicebus 7.15.0", "mongodb": "pymongo 4.20.0", "blob": "azure-storage-blob 12.31.1",
		"administration": "azure-servicebus 7.15.0",
	})
}

// TestJava runs them with azure-messaging-servicebus, mongodb-driver-sync and azure-storage-blob.
func TestJava(t *testing.T) {
	t.Parallel()
	scenarios(t, java(t), map[string]string{
		"servicebus": "azure-messaging-servicebus 7.17.16", "mongodb": "mongodb-driver-sync 5.6.2", "blob": "azure-storage-blob 12.33.1",
	})
}

var titles = map[string]string{"servicebus": "Service Bus", "mongodb": "MongoDB", "blob": "Blob storage", "administration": "Administration"}

func scenarios(t *testing.T, c client, packages map[string]string) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for area, pkg := range packages {
		t.Run(area, func(t *testing.T) {
			t.Parallel()
			s := emulator.Start(t, emulator.Options{ServiceBus: entities(), TLS: true})
			ca := filepath.Join(t.TempDir(), "ca.pem")
			require.NoError(t, os.WriteFile(ca, s.CA(), 0o600))
			c := c
			c.env = append(slices.Clone(c.env), "NODE_EXTRA_CA_CERTS="+ca, "SERVICE_BUS_CA="+ca)
			count := map[string]int{}
			for _, r := range results(t, c.run(t, s, c.dir, c.program(area))) {
				count[r.Outcome]++
				switch r.Outcome {
				case "passed":
					require.NotContains(t, refused[area], r.Name, "it passes now: take it off the list of what is refused")
				case "refused":
					require.Contains(t, refused[area], r.Name, r.Detail)
				default:
					t.Errorf("%s: %s: %s", r.Name, r.Outcome, r.Detail)
				}
			}
			row := fmt.Sprintf("| %s, %s | %s | %d | %d | %d |\n", c.name, pkg, titles[area], count["passed"], count["refused"], count["wrong"])
			require.True(t, strings.Contains(string(readme), row), "the table of README.md has not this run's row: %s", row)
		})
	}
}
