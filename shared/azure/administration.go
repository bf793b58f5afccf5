package azure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// ErrNotAdministered is an emulator of which nobody has said where its administration is.
var ErrNotAdministered = errors.New("where an emulator's is, SERVICE_BUS_ADMINISTRATION says, and it is not set")

var errNoEntity = errors.New("it does not know the entity")

// ValidateAdministration checks the setting SERVICE_BUS_ADMINISTRATION: the URL of an emulator's administration.
func (s ServiceBus) ValidateAdministration(at string) error {
	if at == "" {
		return nil
	}
	to, err := url.Parse(at)
	if s.ConnectionString == "" || err != nil || (to.Scheme != "http" && to.Scheme != "https") || to.Host == "" ||
		strings.Trim(to.Path, "/") != "" || to.RawQuery != "" || to.User != nil {
		return errors.New("SERVICE_BUS_ADMINISTRATION: must be the URL of an emulator's administration, such as http://127.0.0.1:5300, " +
			"beside SERVICE_BUS_CONNECTION_STRING")
	}
	return nil
}

// elsewhere is the way to an administration that is not where the namespace is.
type elsewhere struct{ to *url.URL }

func (e elsewhere) Do(r *http.Request) (*http.Response, error) {
	r.URL.Scheme, r.URL.Host = e.to.Scheme, e.to.Host
	return http.DefaultClient.Do(r)
}

// Administer makes a client of the namespace's administration, which only those who may manage it are answered by. at is the URL of an
// emulator's; empty: it is where the namespace is. A nil credential takes [Credential] where one is needed; web may be nil. Errors:
// [ErrNotAdministered].
func (s ServiceBus) Administer(credential azcore.TokenCredential, at string, web *azcore.ClientOptions) (*admin.Client, error) {
	o := &admin.ClientOptions{}
	switch {
	case at != "":
		to, err := url.Parse(at)
		if err != nil {
			return nil, fmt.Errorf("read SERVICE_BUS_ADMINISTRATION: %w", err)
		}
		o.Transport = elsewhere{to}
	case web != nil:
		o.ClientOptions = *web
	case strings.Contains(s.ConnectionString, "UseDevelopmentEmulator=true"):
		return nil, ErrNotAdministered
	}
	// A person waits. By default one that is away is asked four times, which takes from six to eleven seconds, and so now and then longer
	// than a command does.
	o.Retry = policy.RetryOptions{MaxRetries: 1, RetryDelay: 200 * time.Millisecond}
	if s.ConnectionString != "" {
		return admin.NewClientFromConnectionString(s.ConnectionString, o)
	}
	if credential == nil {
		var err error
		if credential, err = Credential(); err != nil {
			return nil, err
		}
	}
	return admin.NewClient(s.Namespace, credential, o)
}

// Delivery is when the broker takes an entity's messages out by itself.
type Delivery struct {
	Most         int  // its MaxDeliveryCount: after so many deliveries it dead-letters a message
	KeepsExpired bool // it dead-letters messages that have expired, and does not drop them
}

// Delivery asks the administration. Errors: [WillNotTell] of those that asking again does not mend; [Untold] says them.
func (e Entity) Delivery(ctx context.Context, client *admin.Client) (Delivery, error) {
	var most *int32
	var dead *bool
	if e.Queue != "" {
		queue, err := client.GetQueue(ctx, e.Queue, nil)
		if err != nil {
			return Delivery{}, err //nolint:wrapcheck // Untold says it
		}
		if queue != nil {
			most, dead = queue.MaxDeliveryCount, queue.DeadLetteringOnMessageExpiration
		}
	} else {
		subscription, err := client.GetSubscription(ctx, e.Topic, e.Subscription, nil)
		if err != nil {
			return Delivery{}, err //nolint:wrapcheck // Untold says it
		}
		if subscription != nil {
			most, dead = subscription.MaxDeliveryCount, subscription.DeadLetteringOnMessageExpiration
		}
	}
	if most == nil {
		return Delivery{}, errNoEntity
	}
	return Delivery{Most: int(*most), KeepsExpired: dead != nil && *dead}, nil
}

// WillNotTell says whether the administration has nothing to tell whoever asks: it may not, there is none, or it does not know.
func WillNotTell(err error) bool {
	if refused, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return refused.StatusCode < http.StatusInternalServerError && refused.StatusCode != http.StatusTooManyRequests && refused.StatusCode != http.StatusRequestTimeout
	}
	return errors.Is(err, ErrNotAdministered) || errors.Is(err, errNoEntity)
}

// Untold is why the administration does not say what was asked, in words for people.
func Untold(err error) string {
	refused, ok := errors.AsType[*azcore.ResponseError](err)
	switch {
	case !ok:
		return "the administration was not asked, or did not answer: " + err.Error()
	case refused.StatusCode == http.StatusUnauthorized || refused.StatusCode == http.StatusForbidden:
		return "only who may manage the namespace is told (the role Reader on it, or a key with Manage)"
	}
	return "the administration answers " + http.StatusText(refused.StatusCode)
}
