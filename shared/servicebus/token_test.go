package servicebus

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/azure"
)

func TestConnectionStrings(t *testing.T) {
	for text, want := range map[string]Namespace{
		"Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=all;SharedAccessKey=c2VjcmV0PQ==": {
			host: "contoso.servicebus.windows.net", scheme: "amqps", tokens: key{"all", "c2VjcmV0PQ=="},
		},
		"endpoint=sb://localhost:5672;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true;": {
			host: "localhost:5672", scheme: "amqp", tokens: key{"a", "b"},
		},
		"Endpoint=sb://x;SharedAccessSignature=SharedAccessSignature sr=x&sig=y&se=1&skn=z": {
			host: "x", scheme: "amqps", tokens: signature("SharedAccessSignature sr=x&sig=y&se=1&skn=z"),
		},
	} {
		read, err := New(azure.ServiceBus{ConnectionString: text}, nil, nil)
		require.NoError(t, err, text)
		require.Equal(t, &want, read)
	}
}

func TestNoConnectionStringIsQuoted(t *testing.T) {
	for _, text := range []string{"hunter2", "Endpoint=sb://x;SharedAccessKey=hunter2", "Endpoint=sb://;SharedAccessKeyName=a;SharedAccessKey=hunter2"} {
		_, err := New(azure.ServiceBus{ConnectionString: text}, nil, nil)
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestASignatureNamesItsAudience(t *testing.T) {
	now := time.Now()
	got, err := key{name: "all", secret: "secret"}.token(t.Context(), "amqps://contoso.servicebus.windows.net/changes")
	require.NoError(t, err)
	require.Equal(t, kindSAS, got.kind)
	require.Regexp(t, `^SharedAccessSignature sr=amqps%3a%2f%2fcontoso\.servicebus\.windows\.net%2fchanges&sig=[^&]+&se=\d+&skn=all$`, got.value)
	require.WithinDuration(t, now.Add(signatureLife), got.expires, time.Second)
}

func TestARenewalComesInTime(t *testing.T) {
	now := time.Now()
	for left, want := range map[time.Duration]time.Duration{
		24 * time.Hour:   24*time.Hour - 10*time.Minute,
		time.Hour:        50 * time.Minute,
		15 * time.Minute: 7*time.Minute + 30*time.Second,
		5 * time.Second:  10 * time.Second,
		-time.Hour:       10 * time.Second,
	} {
		require.Equal(t, want, renewal(now, now.Add(left)), "%s left", left)
	}
}
