package servicebus

import (
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/amqp"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/filter"
)

// The service's descriptors of rules.
const (
	codeRule              uint64 = 0x13700000004
	codeEmptyAction       uint64 = 0x13700000005
	codeSQLAction         uint64 = 0x13700000006
	codeSQLFilter         uint64 = 0x1370000006
	codeTrueFilter        uint64 = 0x1370000007
	codeFalseFilter       uint64 = 0x1370000008
	codeCorrelationFilter uint64 = 0x1370000009
)

// correlated are the system properties of a correlation filter in the order of its list: as
// requests name them, and as filters do.
var correlated = [][2]string{
	{"correlation-id", "correlationid"},
	{"message-id", "messageid"},
	{"to", "to"},
	{"reply-to", "replyto"},
	{"label", "label"},
	{"session-id", "sessionid"},
	{"reply-to-session-id", "replytosessionid"},
	{"content-type", "contenttype"},
}

func (m *manager) addRule(r *request) response {
	name, _ := r.body()["rule-name"].(string)
	description := amqp.StringMap(r.body()["rule-description"])
	if name == "" || description == nil {
		return badRequest("add-rule needs rule-name and rule-description")
	}
	rule, err := ruleOf(name, description)
	if err != nil {
		return badRequest(fmt.Sprintf("rule '%s': %s", name, err))
	}
	if err := m.rules.AddRule(m.address, rule); err != nil {
		return failed(err)
	}
	return ok(nil)
}

func (m *manager) removeRule(r *request) response {
	name, _ := r.body()["rule-name"].(string)
	if name == "" {
		return badRequest("remove-rule needs rule-name")
	}
	if err := m.rules.RemoveRule(m.address, name); err != nil {
		return failed(err)
	}
	return ok(nil)
}

func (m *manager) listRules(r *request) response {
	skip, isSkip := r.body()["skip"].(int32)
	top, isTop := r.body()["top"].(int32)
	if !isSkip || !isTop || skip < 0 || top < 0 {
		return badRequest("enumerate-rules needs skip and top")
	}
	rules, created, err := m.rules.Rules(m.address)
	if err != nil {
		return failed(err)
	}
	from := min(int(skip), len(rules))
	to := min(from+int(top), len(rules))
	if from == to {
		return response{Status: http.StatusNoContent, Description: "No rules"}
	}
	list := make([]any, 0, to-from)
	for i := from; i < to; i++ {
		list = append(list, map[string]any{"rule-description": describe(rules[i], created[i])})
	}
	return ok(map[string]any{"rules": list})
}

// ruleOf compiles what add-rule describes.
func ruleOf(name string, description map[string]any) (Rule, error) {
	r := Rule{Name: name}
	var err error
	sql, correlation := amqp.StringMap(description["sql-filter"]), amqp.StringMap(description["correlation-filter"])
	switch {
	case sql != nil && correlation != nil:
		return r, fmt.Errorf("it has both a sql-filter and a correlation-filter")
	case sql != nil:
		text, _ := sql["expression"].(string)
		if r.Filter, err = filter.ParseSQL(text, nil); err != nil {
			return r, err
		}
	case correlation != nil:
		c := &filter.Correlation{System: map[string]string{}, User: amqp.StringMap(correlation["properties"])}
		for _, p := range correlated {
			if v, is := correlation[p[0]].(string); is {
				c.System[p[1]] = v
			}
		}
		if len(c.System)+len(c.User) == 0 {
			return r, fmt.Errorf("a correlation-filter needs at least one property")
		}
		r.Filter = c
	default:
		return r, fmt.Errorf("it has neither a sql-filter nor a correlation-filter")
	}
	if action := amqp.StringMap(description["sql-rule-action"]); action != nil {
		text, _ := action["expression"].(string)
		r.Action, err = filter.ParseAction(text, nil)
	}
	return r, err
}

// describe encodes a rule as enumerate-rules answers.
func describe(r Rule, created time.Time) amqp.Described {
	var f amqp.Described
	switch x := r.Filter.(type) {
	case nil:
		f = amqp.Described{Descriptor: codeTrueFilter, Value: []any{}}
	case filter.Const:
		f = amqp.Described{Descriptor: codeTrueFilter, Value: []any{}}
		if !x {
			f.Descriptor = codeFalseFilter
		}
	case *filter.Correlation:
		fields := make([]any, len(correlated)+1)
		for i, p := range correlated {
			if v, set := x.System[p[1]]; set {
				fields[i] = v
			}
		}
		fields[len(correlated)] = maps.Clone(x.User)
		f = amqp.Described{Descriptor: codeCorrelationFilter, Value: fields}
	case fmt.Stringer: // SQL
		f = amqp.Described{Descriptor: codeSQLFilter, Value: []any{x.String(), int32(20)}} // the compatibility level
	}
	action := amqp.Described{Descriptor: codeEmptyAction, Value: []any{}}
	if r.Action != nil {
		action = amqp.Described{Descriptor: codeSQLAction, Value: []any{r.Action.String(), int32(20)}}
	}
	return amqp.Described{Descriptor: codeRule, Value: []any{f, action, r.Name, created}}
}
