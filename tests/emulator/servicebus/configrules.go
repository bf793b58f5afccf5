package servicebus

import (
	"fmt"
	"maps"
	"strings"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/filter"
)

// ruleJSON is a rule in the official emulator's Config.json.
type ruleJSON struct {
	Name       string
	Properties struct {
		FilterType        string
		CorrelationFilter *struct {
			ContentType, CorrelationId, Label, MessageId, ReplyTo, ReplyToSessionId, SessionId, To string //nolint:revive,staticcheck // the schema's names
			Properties                                                                             map[string]any
		}
		SqlFilter *expressionJSON //nolint:revive,staticcheck // the schema's name
		Action    *expressionJSON
	}
}

type expressionJSON struct {
	SqlExpression string //nolint:revive,staticcheck // the schema's name
}

// rules compiles a subscription's rules; none means everything.
func (p *configParser) rules(where string, list []ruleJSON) []Rule {
	if len(list) == 0 {
		return nil
	}
	out := make([]Rule, 0, len(list))
	for _, x := range list {
		r, err := x.compile()
		if err != nil {
			p.fail("%s: rule %s: %w", where, x.Name, err)
		}
		out = append(out, r)
	}
	return out
}

func (x *ruleJSON) compile() (Rule, error) {
	r := Rule{Name: x.Name}
	var err error
	switch kind := x.Properties.FilterType; {
	case strings.EqualFold(kind, "Sql") && x.Properties.SqlFilter != nil:
		r.Filter, err = filter.ParseSQL(x.Properties.SqlFilter.SqlExpression, nil)
	case strings.EqualFold(kind, "Correlation") && x.Properties.CorrelationFilter != nil:
		f := x.Properties.CorrelationFilter
		c := &filter.Correlation{System: map[string]string{}, User: make(map[string]any, len(f.Properties))}
		for name, v := range map[string]string{
			"contenttype": f.ContentType, "correlationid": f.CorrelationId, "label": f.Label, "messageid": f.MessageId,
			"replyto": f.ReplyTo, "replytosessionid": f.ReplyToSessionId, "sessionid": f.SessionId, "to": f.To,
		} {
			if v != "" {
				c.System[name] = v
			}
		}
		maps.Copy(c.User, f.Properties)
		r.Filter = c
	default:
		err = fmt.Errorf("FilterType %q is neither Sql nor Correlation with its filter", kind)
	}
	if err == nil && x.Properties.Action != nil {
		r.Action, err = filter.ParseAction(x.Properties.Action.SqlExpression, nil)
	}
	return r, err
}
