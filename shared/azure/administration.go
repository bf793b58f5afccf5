package azure

import (
	"cmp"
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

// ErrNotAdministered is returned for an emulator if SERVICE_BUS_ADMINISTRATION is not set.
var ErrNotAdministered = errors.New("SERVICE_BUS_ADMINISTRATION, the URL of the emulator's administration, is not set")

var errNoEntity = errors.New("the namespace has no such entity")

// ValidateAdministration checks the setting SERVICE_BUS_ADMINISTRATION: the URL of an emulator's
// administration.
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

// elsewhere sends requests to an administration that is not at the namespace's own address.
type elsewhere struct{ to *url.URL }

func (e elsewhere) Do(r *http.Request) (*http.Response, error) {
	r.URL.Scheme, r.URL.Host = e.to.Scheme, e.to.Host
	return http.DefaultClient.Do(r)
}

// Administer returns a client of the namespace's administration, which answers only identities that
// may manage the namespace. at is the URL of an emulator's administration; if it is empty, the
// administration is at the namespace's own address. If credential is nil, [Credential] is used
// where one is needed. web may be nil. Errors: [ErrNotAdministered].
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
	// A person waits. By default the SDK tries an unreachable administration four times, which
	// takes six to eleven seconds and may exceed the time of a command.
	o.Retry = policy.RetryOptions{MaxRetries: 1, RetryDelay: 200 * time.Millisecond}
	if s.ConnectionString != "" {
		return admin.NewClientFromConnectionString(s.ConnectionString, o)
	}
	credential, err := orIdentity(credential)
	if err != nil {
		return nil, err
	}
	return admin.NewClient(s.Namespace, credential, o)
}

// Delivery holds the settings of an entity by which the broker itself removes messages.
type Delivery struct {
	Most         int  // MaxDeliveryCount: the broker dead-letters a message after so many deliveries
	KeepsExpired bool // the broker dead-letters expired messages instead of dropping them
}

// Delivery asks the administration. If [IsRefusal] reports true for an error, a retry does not
// help; [WhyUnanswered] describes the error.
func (e Entity) Delivery(ctx context.Context, client *admin.Client) (Delivery, error) {
	var most *int32
	var dead *bool
	if e.Queue != "" {
		queue, err := client.GetQueue(ctx, e.Queue, nil)
		if err != nil || queue == nil {
			return Delivery{}, cmp.Or(err, errNoEntity)
		}
		most, dead = queue.MaxDeliveryCount, queue.DeadLetteringOnMessageExpiration
	} else {
		subscription, err := client.GetSubscription(ctx, e.Topic, e.Subscription, nil)
		if err != nil || subscription == nil {
			return Delivery{}, cmp.Or(err, errNoEntity)
		}
		most, dead = subscription.MaxDeliveryCount, subscription.DeadLetteringOnMessageExpiration
	}
	if most == nil {
		return Delivery{}, errNoEntity
	}
	return Delivery{Most: int(*most), KeepsExpired: dead != nil && *dead}, nil
}

// Storage is how full a topic or queue is.
type Storage struct {
	Bytes, Most int64
	Created     time.Time // of the subscription or queue
}

// Storage asks the administration how full the entity's topic or queue is. Errors are as those of
// [Entity.Delivery].
func (e Entity) Storage(ctx context.Context, client *admin.Client) (s Storage, err error) {
	var most *int32
	if e.Queue != "" {
		queue, err := client.GetQueue(ctx, e.Queue, nil)
		if err != nil || queue == nil {
			return s, cmp.Or(err, errNoEntity)
		}
		size, err := client.GetQueueRuntimeProperties(ctx, e.Queue, nil)
		if err != nil || size == nil {
			return s, cmp.Or(err, errNoEntity)
		}
		s.Bytes, s.Created, most = size.SizeInBytes, size.CreatedAt, queue.MaxSizeInMegabytes
	} else {
		topic, err := client.GetTopic(ctx, e.Topic, nil)
		if err != nil || topic == nil {
			return s, cmp.Or(err, errNoEntity)
		}
		size, err := client.GetTopicRuntimeProperties(ctx, e.Topic, nil)
		if err != nil || size == nil {
			return s, cmp.Or(err, errNoEntity)
		}
		subscription, err := client.GetSubscriptionRuntimeProperties(ctx, e.Topic, e.Subscription, nil)
		if err != nil || subscription == nil {
			return s, cmp.Or(err, errNoEntity)
		}
		s.Bytes, s.Created, most = size.SizeInBytes, subscription.CreatedAt, topic.MaxSizeInMegabytes
	}
	if most != nil {
		s.Most = int64(*most) << 20
	}
	return s, nil
}

// IsRefusal reports whether a retry cannot get an answer: the caller lacks the permission, there
// is no administration, or it does not know the entity.
func IsRefusal(err error) bool {
	if refused, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return refused.StatusCode < http.StatusInternalServerError && refused.StatusCode != http.StatusTooManyRequests && refused.StatusCode != http.StatusRequestTimeout
	}
	return errors.Is(err, ErrNotAdministered) || errors.Is(err, errNoEntity)
}

// WhyUnanswered returns the reason why the administration did not answer a question, for people.
func WhyUnanswered(err error) string {
	refused, ok := errors.AsType[*azcore.ResponseError](err)
	switch {
	case !ok:
		return "the administration was not asked, or did not answer: " + err.Error()
	case refused.StatusCode == http.StatusUnauthorized || refused.StatusCode == http.StatusForbidden:
		return "this identity may not read the namespace's settings (it needs the role Reader on the namespace, or a key with Manage)"
	}
	return "the administration answered " + http.StatusText(refused.StatusCode)
}
