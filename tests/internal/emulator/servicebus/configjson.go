package servicebus

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"
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
			if len(s.Rules) > 0 {
				p.fail("%s: Rules are not supported", where)
			}
			topic.Subscriptions = append(topic.Subscriptions, Subscription{
				Name: s.Name, Outbound: p.outbound(where, s.Properties),
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
					Rules      []json.RawMessage
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
	if x.ForwardTo != "" {
		p.fail("%s: ForwardTo is not supported", where)
	}
	if x.ForwardDeadLetteredMessagesTo != "" {
		p.fail("%s: ForwardDeadLetteredMessagesTo is not supported", where)
	}
	return Outbound{
		RequiresSession:                  x.RequiresSession,
		LockDuration:                     p.duration(where, "LockDuration", x.LockDuration),
		MaxDeliveryCount:                 x.MaxDeliveryCount,
		DeadLetteringOnMessageExpiration: x.DeadLetteringOnMessageExpiration,
	}
}

func (p *configParser) duration(where, name, s string) time.Duration {
	if s == "" {
		return 0
	}
	d, err := parseISODuration(s)
	if err != nil {
		p.fail("%s: %s: %w", where, name, err)
	}
	return d
}

var isoDuration = regexp.MustCompile(`^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?$`)

// parseISODuration reads days to seconds; years and months have no fixed length.
func parseISODuration(s string) (time.Duration, error) {
	m := isoDuration.FindStringSubmatch(s)
	if m == nil || m[1]+m[2]+m[3]+m[4] == "" {
		return 0, fmt.Errorf("%q is not an ISO 8601 duration of days, hours, minutes and seconds", s)
	}
	var total float64
	for i, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		if m[i+1] == "" {
			continue
		}
		n, err := strconv.ParseFloat(m[i+1], 64)
		if err != nil {
			return 0, fmt.Errorf("parse duration %q: %w", s, err)
		}
		total += n * float64(unit)
	}
	const year = 365 * 24 * float64(time.Hour)
	if total > 250*year {
		return 0, fmt.Errorf("duration %q is too long", s)
	}
	return time.Duration(total), nil
}
