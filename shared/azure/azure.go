// Package azure opens the clients of Service Bus and Blob storage, with one of two kinds of
// setting:
//
//   - a name (namespace, account URL): the workload signs in with its identity, through
//     azidentity's DefaultAzureCredential. This is for Azure; no secret is configured.
//   - a connection string: for emulators and tests, which have no identities.
//
// To set both or neither is a configuration error.
package azure

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
)

// ServiceBus is the namespace to use, and how to sign in.
type ServiceBus struct {
	// Namespace is the fully qualified name, such as contoso.servicebus.windows.net.
	Namespace string `envconfig:"SERVICE_BUS_NAMESPACE"`
	// ConnectionString is a secret.
	ConnectionString string `envconfig:"SERVICE_BUS_CONNECTION_STRING" secret:"true"`
}

// Validate reports every problem, joined.
func (s ServiceBus) Validate() error {
	if err := exactlyOne("SERVICE_BUS_NAMESPACE", s.Namespace, "SERVICE_BUS_CONNECTION_STRING", s.ConnectionString); err != nil {
		return err
	}
	if s.Namespace != "" && (strings.ContainsAny(s.Namespace, ":/ ") || !strings.Contains(s.Namespace, ".")) {
		return errors.New("SERVICE_BUS_NAMESPACE: must be a fully qualified name such as contoso.servicebus.windows.net, " +
			"without a scheme or a port")
	}
	if s.ConnectionString != "" {
		if _, err := azservicebus.NewClientFromConnectionString(s.ConnectionString, nil); err != nil {
			// The parser's message may quote the string, which is a secret.
			return errors.New("SERVICE_BUS_CONNECTION_STRING: is not a Service Bus connection string " +
				"(Endpoint=sb://…;SharedAccessKeyName=…;SharedAccessKey=…)")
		}
	}
	return nil
}

// Client opens a client with one AMQP connection, which is made at the first use. The credential is
// used only if a namespace is configured; nil takes [Credential]. options may be nil.
func (s ServiceBus) Client(credential azcore.TokenCredential, options *azservicebus.ClientOptions) (*azservicebus.Client, error) {
	var client *azservicebus.Client
	var err error
	if s.ConnectionString != "" {
		client, err = azservicebus.NewClientFromConnectionString(s.ConnectionString, options)
	} else {
		if credential, err = orIdentity(credential); err != nil {
			return nil, err
		}
		client, err = azservicebus.NewClient(s.Namespace, credential, options)
	}
	if err != nil {
		return nil, fmt.Errorf("open Service Bus client: %w", err)
	}
	return client, nil
}

// Blob is the storage account to use, and how to sign in.
type Blob struct {
	// AccountURL is a URL such as https://contoso.blob.core.windows.net.
	AccountURL string `envconfig:"BLOB_ACCOUNT_URL"`
	// ConnectionString is a secret.
	ConnectionString string `envconfig:"BLOB_CONNECTION_STRING" secret:"true"`
}

// Validate reports every problem, joined.
func (b Blob) Validate() error {
	if err := exactlyOne("BLOB_ACCOUNT_URL", b.AccountURL, "BLOB_CONNECTION_STRING", b.ConnectionString); err != nil {
		return err
	}
	if b.AccountURL != "" {
		u, err := url.Parse(b.AccountURL)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.User != nil {
			return errors.New("BLOB_ACCOUNT_URL: must be an https URL such as https://contoso.blob.core.windows.net, " +
				"without a query: access comes from the workload's identity")
		}
	}
	if signed(b.ConnectionString) {
		return errors.New("BLOB_CONNECTION_STRING: must not hold a shared access signature, which every request would carry in its URL, and " +
			"so every error of the network: use an account key (for an emulator), or BLOB_ACCOUNT_URL and the workload's identity")
	}
	if b.ConnectionString != "" {
		if _, err := azblob.NewClientFromConnectionString(b.ConnectionString, nil); err != nil {
			return errors.New("BLOB_CONNECTION_STRING: is not a storage connection string " +
				"(DefaultEndpointsProtocol=…;AccountName=…;AccountKey=…;BlobEndpoint=…)")
		}
	}
	return nil
}

// signed reports whether a connection string of storage signs in with a signature in the URL.
func signed(connectionString string) bool {
	for field := range strings.SplitSeq(connectionString, ";") {
		name, value, _ := strings.Cut(field, "=")
		name = strings.ToLower(strings.TrimSpace(name))
		if name == "sharedaccesssignature" || strings.HasSuffix(name, "endpoint") && strings.Contains(value, "?") {
			return true
		}
	}
	return false
}

// Client opens a client; nothing is sent before its first use. The credential is used only if an
// account URL is configured; nil takes [Credential]. options may be nil.
func (b Blob) Client(credential azcore.TokenCredential, options *azblob.ClientOptions) (*azblob.Client, error) {
	var client *azblob.Client
	var err error
	if b.ConnectionString != "" {
		client, err = azblob.NewClientFromConnectionString(b.ConnectionString, options)
	} else {
		if credential, err = orIdentity(credential); err != nil {
			return nil, err
		}
		client, err = azblob.NewClient(b.AccountURL, credential, options)
	}
	if err != nil {
		return nil, fmt.Errorf("open Blob client: %w", err)
	}
	return client, nil
}

// Credential returns the workload's identity: in Azure its managed identity (AZURE_CLIENT_ID names
// a user-assigned one), on a developer's machine the identity of the user who is signed in. No
// token is fetched before the first use.
func Credential() (azcore.TokenCredential, error) {
	credential, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, fmt.Errorf("find an Azure identity: %w", err)
	}
	return credential, nil
}

// orIdentity returns the credential or, if it is nil, the workload's identity.
func orIdentity(credential azcore.TokenCredential) (azcore.TokenCredential, error) {
	if credential != nil {
		return credential, nil
	}
	return Credential()
}

func exactlyOne(nameA, a, nameB, b string) error {
	switch {
	case a == "" && b == "":
		return fmt.Errorf("%s: is required (or, for an emulator, %s)", nameA, nameB)
	case a != "" && b != "":
		return fmt.Errorf("%s: must not be set together with %s: they name two different ways to sign in", nameA, nameB)
	}
	return nil
}
