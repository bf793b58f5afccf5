package azure_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/azure"
)

const (
	busString  = "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true;"
	blobString = "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=c2VjcmV0;BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1;"
)

func TestServiceBusIsSignedInToInExactlyOneWay(t *testing.T) {
	for name, test := range map[string]struct {
		settings azure.ServiceBus
		want     string
	}{
		"namespace":          {azure.ServiceBus{Namespace: "contoso.servicebus.windows.net"}, ""},
		"connection string":  {azure.ServiceBus{ConnectionString: busString}, ""},
		"neither":            {azure.ServiceBus{}, "SERVICE_BUS_NAMESPACE: is required"},
		"both":               {azure.ServiceBus{Namespace: "a.b", ConnectionString: busString}, "must not be set together"},
		"a bare name":        {azure.ServiceBus{Namespace: "contoso"}, "fully qualified"},
		"a URL":              {azure.ServiceBus{Namespace: "sb://contoso.servicebus.windows.net"}, "fully qualified"},
		"no such connection": {azure.ServiceBus{ConnectionString: "hunter2"}, "SERVICE_BUS_CONNECTION_STRING: is not"},
	} {
		t.Run(name, func(t *testing.T) { requireProblem(t, test.settings.Validate(), test.want) })
	}
}

func TestBlobIsSignedInToInExactlyOneWay(t *testing.T) {
	for name, test := range map[string]struct {
		settings azure.Blob
		want     string
	}{
		"account":            {azure.Blob{AccountURL: "https://contoso.blob.core.windows.net"}, ""},
		"connection string":  {azure.Blob{ConnectionString: blobString}, ""},
		"neither":            {azure.Blob{}, "BLOB_ACCOUNT_URL: is required"},
		"both":               {azure.Blob{AccountURL: "https://a.b", ConnectionString: blobString}, "must not be set together"},
		"no TLS":             {azure.Blob{AccountURL: "http://contoso.blob.core.windows.net"}, "must be an https URL"},
		"a shared signature": {azure.Blob{AccountURL: "https://contoso.blob.core.windows.net/?sig=hunter2"}, "without a query"},
		"a signature in the connection string": {
			azure.Blob{ConnectionString: "BlobEndpoint=http://127.0.0.1:1/account;SharedAccessSignature=sv=2024-11-04&sig=hunter2"}, "shared access signature",
		},
		"a signature in its endpoint": {azure.Blob{ConnectionString: blobString + "BlobEndpoint=http://127.0.0.1:1/a?sig=hunter2"}, "shared access signature"},
		"no such connection":          {azure.Blob{ConnectionString: "hunter2"}, "BLOB_CONNECTION_STRING: is not"},
	} {
		t.Run(name, func(t *testing.T) { requireProblem(t, test.settings.Validate(), test.want) })
	}
}

// requireProblem requires an error with a text and without a secret, or none if the text is empty.
func requireProblem(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		require.NoError(t, err)
		return
	}
	require.ErrorContains(t, err, want)
	require.NotContains(t, err.Error(), "hunter2")
}

// Both ways open a client without a request; that they work is tested against the embedded servers.
func TestClientsOpenWithoutARequest(t *testing.T) {
	t.Setenv("AZURE_CLIENT_ID", "00000000-0000-0000-0000-000000000001")
	credential, err := azure.Credential()
	require.NoError(t, err)

	for _, s := range []azure.ServiceBus{{Namespace: "contoso.servicebus.windows.net"}, {ConnectionString: busString}} {
		client, err := s.Client(credential, nil)
		require.NoError(t, err)
		require.NoError(t, client.Close(t.Context()))
	}
	for _, b := range []azure.Blob{{AccountURL: "https://contoso.blob.core.windows.net"}, {ConnectionString: blobString}} {
		client, err := b.Client(credential, nil)
		require.NoError(t, err)
		require.Contains(t, client.URL(), "http")
	}
}
