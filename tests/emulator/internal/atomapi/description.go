package atomapi

import (
	"encoding/xml"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/broker"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/isoduration"
)

const (
	nsConnect = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
	nsXSI     = "http://www.w3.org/2001/XMLSchema-instance"
	forever   = "P10675199DT2H48M5.4775807S" // the largest TimeSpan of .NET
)

// description is a QueueDescription, TopicDescription or SubscriptionDescription; which fields
// are filled depends on the kind. Durations are ISO 8601.
type description struct {
	XMLName xml.Name
	XMLNS   string `xml:"xmlns,attr,omitempty"`
	XMLNSI  string `xml:"xmlns:i,attr,omitempty"`

	LockDuration                              *string  `xml:"LockDuration"`
	MaxSizeInMegabytes                        *int64   `xml:"MaxSizeInMegabytes"`
	RequiresDuplicateDetection                *bool    `xml:"RequiresDuplicateDetection"`
	RequiresSession                           *bool    `xml:"RequiresSession"`
	DefaultMessageTimeToLive                  *string  `xml:"DefaultMessageTimeToLive"`
	DeadLetteringOnMessageExpiration          *bool    `xml:"DeadLetteringOnMessageExpiration"`
	DeadLetteringOnFilterEvaluationExceptions *bool    `xml:"DeadLetteringOnFilterEvaluationExceptions"`
	DefaultRuleDescription                    *ruleXML `xml:"DefaultRuleDescription"`
	DuplicateDetectionHistoryTimeWindow       *string  `xml:"DuplicateDetectionHistoryTimeWindow"`
	MaxDeliveryCount                          *int     `xml:"MaxDeliveryCount"`
	EnableBatchedOperations                   *bool    `xml:"EnableBatchedOperations"`
	SizeInBytes                               *int64   `xml:"SizeInBytes"`
	FilteringMessagesBeforePublishing         *bool    `xml:"FilteringMessagesBeforePublishing"`
	MessageCount                              *int64   `xml:"MessageCount"`
	IsAnonymousAccessible                     *bool    `xml:"IsAnonymousAccessible"`
	AuthorizationRules                        *raw     `xml:"AuthorizationRules"`
	Status                                    *string  `xml:"Status"`
	ForwardTo                                 *string  `xml:"ForwardTo"`
	UserMetadata                              *string  `xml:"UserMetadata"`
	CreatedAt                                 string   `xml:"CreatedAt,omitempty"`
	UpdatedAt                                 string   `xml:"UpdatedAt,omitempty"`
	AccessedAt                                string   `xml:"AccessedAt,omitempty"`
	SupportOrdering                           *bool    `xml:"SupportOrdering"`
	CountDetails                              *counts  `xml:"CountDetails"`
	SubscriptionCount                         *int     `xml:"SubscriptionCount"`
	SQLFilterCount                            *int     `xml:"SqlFilterCount"`
	CorrelationFilterCount                    *int     `xml:"CorrelationFilterCount"`
	AutoDeleteOnIdle                          *string  `xml:"AutoDeleteOnIdle"`
	EnablePartitioning                        *bool    `xml:"EnablePartitioning"`
	EnableSubscriptionPartitioning            *bool    `xml:"EnableSubscriptionPartitioning"`
	EntityAvailabilityStatus                  *string  `xml:"EntityAvailabilityStatus"`
	EnableExpress                             *bool    `xml:"EnableExpress"`
	ForwardDeadLetteredMessagesTo             *string  `xml:"ForwardDeadLetteredMessagesTo"`
	MaxMessageSizeInKilobytes                 *int64   `xml:"MaxMessageSizeInKilobytes"`
}

// raw is XML that is kept as it came.
type raw struct {
	Inner string `xml:",innerxml"`
}

// counts is raw with the namespace that all its elements share: JavaScript's client expects their
// prefix.
type counts struct {
	Namespace string `xml:"xmlns:d2p1,attr,omitempty"`
	Inner     string `xml:",innerxml"`
}

func or[T any](p **T, v T) {
	if *p == nil {
		*p = &v
	}
}

// complete fills in the service's defaults.
func (d *description) complete(kind string, premium bool) {
	or(&d.DefaultMessageTimeToLive, forever)
	or(&d.EnableBatchedOperations, true)
	or(&d.Status, "Active")
	or(&d.AutoDeleteOnIdle, forever)
	d.EntityAvailabilityStatus = new("Available")
	if kind != topicKind {
		or(&d.LockDuration, "PT1M")
		or(&d.RequiresSession, false)
		or(&d.DeadLetteringOnMessageExpiration, false)
		or(&d.MaxDeliveryCount, broker.DefaultMaxDeliveryCount)
	}
	if kind == subscriptionKind {
		or(&d.DeadLetteringOnFilterEvaluationExceptions, true)
		return
	}
	or(&d.MaxSizeInMegabytes, 1024)
	or(&d.RequiresDuplicateDetection, false)
	or(&d.DuplicateDetectionHistoryTimeWindow, "PT10M")
	or(&d.EnablePartitioning, false)
	or(&d.EnableExpress, false)
	or(&d.SupportOrdering, true)
	or(&d.MaxMessageSizeInKilobytes, map[bool]int64{false: 256, true: 1024}[premium])
}

// problems collects what is wrong with a description.
type problems struct{ errs []error }

func (p *problems) duration(name string, s *string) time.Duration {
	if s == nil {
		return 0
	}
	d, err := isoduration.Parse(*s)
	if err != nil {
		p.errs = append(p.errs, fmt.Errorf("%s: %w", name, err))
	}
	return d
}

func (p *problems) disabled(status *string, direction string) bool {
	if status == nil {
		return false
	}
	switch *status {
	case "Active", "SendDisabled", "ReceiveDisabled":
		return *status == direction
	case "Disabled":
		return true
	}
	p.errs = append(p.errs, fmt.Errorf("the status %q cannot be set", *status))
	return false
}

func (d *description) inbound(p *problems) broker.Inbound {
	return broker.Inbound{
		RequiresDuplicateDetection: is(d.RequiresDuplicateDetection),
		DuplicateDetectionWindow:   p.duration("DuplicateDetectionHistoryTimeWindow", d.DuplicateDetectionHistoryTimeWindow),
		DefaultMessageTimeToLive:   p.duration("DefaultMessageTimeToLive", d.DefaultMessageTimeToLive),
		EnablePartitioning:         is(d.EnablePartitioning),
		AutoDeleteOnIdle:           p.duration("AutoDeleteOnIdle", d.AutoDeleteOnIdle),
		SendDisabled:               p.disabled(d.Status, "SendDisabled"),
		MaxMessageBytes:            uint64(*d.MaxMessageSizeInKilobytes) << 10,
	}
}

func (d *description) outbound(p *problems) broker.Outbound {
	return broker.Outbound{
		RequiresSession:                  is(d.RequiresSession),
		LockDuration:                     p.duration("LockDuration", d.LockDuration),
		MaxDeliveryCount:                 *d.MaxDeliveryCount,
		DeadLetteringOnMessageExpiration: is(d.DeadLetteringOnMessageExpiration),
		ForwardTo:                        pathOf(d.ForwardTo),
		ForwardDeadLetteredMessagesTo:    pathOf(d.ForwardDeadLetteredMessagesTo),
		ReceiveDisabled:                  p.disabled(d.Status, "ReceiveDisabled"),
	}
}

func (d *description) subscription(name string, p *problems) broker.Subscription {
	return broker.Subscription{
		Name: name, Outbound: d.outbound(p),
		AutoDeleteOnIdle:            p.duration("AutoDeleteOnIdle", d.AutoDeleteOnIdle),
		DefaultMessageTimeToLive:    p.duration("DefaultMessageTimeToLive", d.DefaultMessageTimeToLive),
		DeadLetteringOnFilterErrors: is(d.DeadLetteringOnFilterEvaluationExceptions),
	}
}

func (p *problems) err() error { return errors.Join(p.errs...) }

func is(b *bool) bool { return b != nil && *b }

// pathOf returns the entity that an address like sb://host/queue or a bare name refers to.
func pathOf(s *string) string {
	if s == nil {
		return ""
	}
	if u, err := url.Parse(*s); err == nil && u.Scheme != "" {
		return strings.Trim(u.Path, "/")
	}
	return *s
}

// unsupported returns an error for a requested feature that is not provided.
func (d *description) unsupported() error {
	for _, f := range []struct {
		property string
		wanted   *bool
	}{
		{"EnableExpress", d.EnableExpress},
		{"EnableSubscriptionPartitioning", d.EnableSubscriptionPartitioning},
		{"FilteringMessagesBeforePublishing", d.FilteringMessagesBeforePublishing},
		{"IsAnonymousAccessible", d.IsAnonymousAccessible},
	} {
		if is(f.wanted) {
			return fmt.Errorf("%s is not supported by this emulator", f.property)
		}
	}
	return nil
}

// fixed reports a property that differs from now and must not.
func (d *description) fixed(now *description, kind string) error {
	name := strings.TrimSuffix(kind, "Description")
	for _, f := range []struct {
		property string
		old, new *bool
	}{
		{"RequiresSession", now.RequiresSession, d.RequiresSession},
		{"RequiresDuplicateDetection", now.RequiresDuplicateDetection, d.RequiresDuplicateDetection},
	} {
		if f.new != nil && is(f.old) != is(f.new) {
			return fmt.Errorf("The value for the %s property of an existing %s cannot be changed", f.property, name) //nolint:staticcheck // the service's words
		}
	}
	if d.EnablePartitioning != nil && is(d.EnablePartitioning) != is(now.EnablePartitioning) {
		return fmt.Errorf("Partitioning cannot be changed for %s. ", name) //nolint:staticcheck // the service's words
	}
	return nil
}
