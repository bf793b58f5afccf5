package servicebus_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

const officialConfig = `{"UserConfig":{"Namespaces":[{"Name":"sbemulatorns",
 "Queues":[{"Name":"work","Properties":{"LockDuration":"PT45.5S","MaxDeliveryCount":4,"DefaultMessageTimeToLive":"PT1H"}}],
 "Topics":[{"Name":"changes",
  "Properties":{"DefaultMessageTimeToLive":"PT1H","RequiresDuplicateDetection":true,"DuplicateDetectionHistoryTimeWindow":"PT5M"},
  "Subscriptions":[{"Name":"projector","Properties":{"RequiresSession":true,"LockDuration":"PT1M","MaxDeliveryCount":10,
   "DeadLetteringOnMessageExpiration":true,"DefaultMessageTimeToLive":"P1DT1H",
   "ForwardDeadLetteredMessagesTo":"","ForwardTo":""}}]}]}],
 "Logging":{"Type":"Console"}}}`

func TestOfficialConfigIsUnderstood(t *testing.T) {
	cfg, err := servicebus.ParseConfig([]byte(officialConfig))
	require.NoError(t, err)
	require.Equal(t, servicebus.Config{
		Queues: []servicebus.Queue{{
			Name:     "work",
			Inbound:  servicebus.Inbound{DefaultMessageTimeToLive: time.Hour},
			Outbound: servicebus.Outbound{LockDuration: 45*time.Second + 500*time.Millisecond, MaxDeliveryCount: 4},
		}},
		Topics: []servicebus.Topic{{
			Name: "changes",
			Inbound: servicebus.Inbound{
				RequiresDuplicateDetection: true, DuplicateDetectionWindow: 5 * time.Minute, DefaultMessageTimeToLive: time.Hour,
			},
			Subscriptions: []servicebus.Subscription{{
				Name: "projector", DefaultMessageTimeToLive: 25 * time.Hour,
				Outbound: servicebus.Outbound{
					RequiresSession: true, LockDuration: time.Minute, MaxDeliveryCount: 10, DeadLetteringOnMessageExpiration: true,
				},
			}},
		}},
	}, cfg)
	_, err = servicebus.New(cfg, servicebus.Options{})
	require.NoError(t, err)
}

func TestConfigProblemsAreAllNamed(t *testing.T) {
	_, err := servicebus.ParseConfig([]byte(`{"UserConfig":{"Namespaces":[{"Name":"n",
	 "Queues":[{"Name":"q","Properties":{"LockDuration":"1 minute","ForwardTo":"x","RequiresSession":true}},{"Name":"Q"}],
	 "Topics":[{"Name":"t","Subscriptions":[{"Name":"s","Properties":{"LockDuration":"PT6M"},"Rules":[{"Name":"r"}]}]}]}]}}`))
	require.Error(t, err)
	for _, want := range []string{
		`queue q: LockDuration: "1 minute"`, "queue q: an entity that requires sessions cannot forward", `queue "Q" is defined twice`,
		`rule r: FilterType ""`, "lock duration 6m0s is not within 5m0s",
	} {
		require.ErrorContains(t, err, want)
	}
	for name, text := range map[string]string{
		"not JSON":         `{`,
		"unknown property": `{"UserConfig":{"Namespaces":[{"Name":"n","Queues":[{"Name":"q","Properties":{"Sessions":true}}]}]}}`,
		"two namespaces":   `{"UserConfig":{"Namespaces":[{"Name":"a"},{"Name":"b"}]}}`,
		"no namespace":     `{}`,
		"bad expression":   `{"UserConfig":{"Namespaces":[{"Name":"n","Topics":[{"Name":"t","Subscriptions":[{"Name":"s","Rules":[{"Name":"r","Properties":{"FilterType":"Sql","SqlFilter":{"SqlExpression":"a ="}}}]}]}]}]}}`,
	} {
		_, err := servicebus.ParseConfig([]byte(text))
		require.Error(t, err, name)
	}
}
