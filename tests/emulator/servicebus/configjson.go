package servicebus

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/isoduration"
)

// ParseConfig reads the official emulator's Config.json. A property this emulator cannot
// honour is an error that names it, and so is one it does not know.
func ParseConfig(data []byte) (Config, error) {
	var f configFile
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return Config{}, fmt.Errorf("parse service bus config: %w", err)
	}
	p := configParser{}
	if len(f.UserConfig.Namespaces) != 1 {
		return Config{}, fmt.Errorf("parse service bus config: want one namespace, got %d", len(f.UserConfig.Namespaces))
	}
	ns := f.UserConfig.Namespaces[0]
	var cfg Config
	for _, q := range ns.Queues {
		where := "queue " + q.Name
		cfg.Queues = append(cfg.Queues, Queue{
			Name: q.Name, Inbound: p.inbound(where, q.Properties), Outbound: p.outbound(where, q.Properties),
		})
	}
	for _, t := range ns.Topics {
		topic := Topic{Name: t.Name, Inbound: p.inbound("topic "+t.Name, t.Properties)}
		for _, s := range t.Subscriptions {
			where := "subscription " + t.Name + "/" + s.Name
			topic.Subscriptions = append(topic.Subscriptions, Subscription{
				Name: s.Name, Rules: p.rules(where, s.Rules), Outbound: p.outbound(where, s.Properties),
				DefaultMessageTimeToLive: p.duration(where, "DefaultMessageTimeToLive", s.Properties.DefaultMessageTimeToLive),
			})
		}
		cfg.Topics = append(cfg.Topics, topic)
	}
	if err := errors.Join(append(p.errs, cfg.Validate())...); err != nil {
		return Config{}, fmt.Errorf("parse service bus config: %w", err)
	}
	return cfg, nil
}

type configFile struct {
	UserConfig struct {
		Namespaces []struct {
			Name   string
			Queues []struct {
				Name       string
				Properties properties
			}
			Topics []struct {
				Name          string
				Properties    properties
				Subscriptions []struct {
					Name       string
					Properties properties
					Rules      []ruleJSON
				}
			}
		}
		Logging json.RawMessage
	}
}

type properties struct {
	DeadLetteringOnMessageExpiration    bool
	DefaultMessageTimeToLive            string
	DuplicateDetectionHistoryTimeWindow string
	ForwardDeadLetteredMessagesTo       string
	ForwardTo                           string
	LockDuration                        string
	MaxDeliveryCount                    int
	RequiresDuplicateDetection          bool
	RequiresSession                     bool
}

type configParser struct{ errs []error }

func (p *configParser) fail(format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf(format, args...))
}

func (p *configParser) inbound(where string, x properties) Inbound {
	return Inbound{
		RequiresDuplicateDetection: x.RequiresDuplicateDetection,
		DuplicateDetectionWindow:   p.duration(where, "DuplicateDetectionHistoryTimeWindow", x.DuplicateDetectionHistoryTimeWindow),
		DefaultMessageTimeToLive:   p.duration(where, "DefaultMessageTimeToLive", x.DefaultMessageTimeToLive),
	}
}

func (p *configParser) outbound(where string, x properties) Outbound {
	return Outbound{
		RequiresSession:                  x.RequiresSession,
		LockDuration:                     p.duration(where, "LockDuration", x.LockDuration),
		MaxDeliveryCount:                 x.MaxDeliveryCount,
		ForwardTo:                        x.ForwardTo,
		ForwardDeadLetteredMessagesTo:    x.ForwardDeadLetteredMessagesTo,
		DeadLetteringOnMessageExpiration: x.DeadLetteringOnMessageExpiration,
	}
}

func (p *configParser) duration(where, name, s string) time.Duration {
	if s == "" {
		return 0
	}
	d, err := isoduration.Parse(s)
	if err != nil {
		p.fail("%s: %s: %w", where, name, err)
	}
	return d
}
