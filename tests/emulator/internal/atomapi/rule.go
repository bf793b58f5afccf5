package atomapi

import (
	"encoding/xml"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/broker"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/filter"
)

// ruleXML is a RuleDescription as clients send it.
type ruleXML struct {
	Name   string     `xml:"Name"`
	Filter *filterXML `xml:"Filter"`
	Action *actionXML `xml:"Action"`
}

type filterXML struct {
	Type             string     `xml:"http://www.w3.org/2001/XMLSchema-instance type,attr"`
	CorrelationID    *string    `xml:"CorrelationId"`
	MessageID        *string    `xml:"MessageId"`
	To               *string    `xml:"To"`
	ReplyTo          *string    `xml:"ReplyTo"`
	Label            *string    `xml:"Label"`
	SessionID        *string    `xml:"SessionId"`
	ReplyToSessionID *string    `xml:"ReplyToSessionId"`
	ContentType      *string    `xml:"ContentType"`
	Properties       *valuesXML `xml:"Properties"`
	SQL              *string    `xml:"SqlExpression"`
	Parameters       *valuesXML `xml:"Parameters"`
}

type actionXML struct {
	Type       string     `xml:"http://www.w3.org/2001/XMLSchema-instance type,attr"`
	SQL        *string    `xml:"SqlExpression"`
	Parameters *valuesXML `xml:"Parameters"`
}

type valuesXML struct {
	Items []valueXML `xml:"KeyValueOfstringanyType"`
}

type valueXML struct {
	Key   string `xml:"Key"`
	Value struct {
		Type string `xml:"http://www.w3.org/2001/XMLSchema-instance type,attr"`
		Text string `xml:",chardata"`
	} `xml:"Value"`
}

// values decodes typed values; nil if v is nil.
func (v *valuesXML) values() (map[string]any, error) {
	if v == nil {
		return nil, nil
	}
	out := make(map[string]any, len(v.Items))
	for _, x := range v.Items {
		kind := x.Value.Type[strings.IndexByte(x.Value.Type, ':')+1:]
		var err error
		switch kind {
		case "string":
			out[x.Key] = x.Value.Text
		case "int", "long", "short", "byte":
			out[x.Key], err = strconv.ParseInt(x.Value.Text, 10, 64)
		case "double", "float", "decimal":
			out[x.Key], err = strconv.ParseFloat(x.Value.Text, 64)
		case "boolean":
			out[x.Key], err = strconv.ParseBool(x.Value.Text)
		case "dateTime":
			out[x.Key], err = time.Parse(time.RFC3339Nano, x.Value.Text)
		default:
			err = fmt.Errorf("type %q is not supported by this emulator", x.Value.Type)
		}
		if err != nil {
			return nil, fmt.Errorf("value %s: %w", x.Key, err)
		}
	}
	return out, nil
}

// compile makes a rule from a description; without a filter it selects everything.
func (x *ruleXML) compile() (broker.Rule, error) {
	r := broker.Rule{Name: x.Name}
	var err error
	if x.Filter == nil {
		x.Filter = &filterXML{Type: "TrueFilter"}
	}
	if r.Filter, err = x.Filter.compile(); err != nil {
		return r, err
	}
	if a := x.Action; a != nil && a.Type != "EmptyRuleAction" {
		if a.Type != "SqlRuleAction" || a.SQL == nil {
			return r, fmt.Errorf("rule action %q is not supported by this emulator", a.Type)
		}
		params, err := a.Parameters.values()
		if err != nil {
			return r, err
		}
		if r.Action, err = filter.ParseAction(*a.SQL, params); err != nil {
			return r, err
		}
	}
	return r, nil
}

func (x *filterXML) compile() (filter.Filter, error) {
	switch x.Type {
	case "TrueFilter":
		return nil, nil
	case "FalseFilter":
		return filter.Const(false), nil
	case "SqlFilter":
		if x.SQL == nil {
			return nil, fmt.Errorf("a SqlFilter needs a SqlExpression")
		}
		params, err := x.Parameters.values()
		if err != nil {
			return nil, err
		}
		return filter.ParseSQL(*x.SQL, params)
	case "CorrelationFilter":
		c := &filter.Correlation{System: map[string]string{}}
		for _, f := range x.correlation() {
			if *f.value != nil {
				c.System[strings.ToLower(f.name)] = **f.value
			}
		}
		var err error
		c.User, err = x.Properties.values()
		if err == nil && len(c.System)+len(c.User) == 0 {
			err = fmt.Errorf("a CorrelationFilter needs at least one property")
		}
		return c, err
	}
	return nil, fmt.Errorf("filter %q is not supported by this emulator", x.Type)
}

type field struct {
	name  string
	value **string
}

func (x *filterXML) correlation() []field {
	return []field{
		{"CorrelationId", &x.CorrelationID},
		{"MessageId", &x.MessageID},
		{"To", &x.To},
		{"ReplyTo", &x.ReplyTo},
		{"Label", &x.Label},
		{"SessionId", &x.SessionID},
		{"ReplyToSessionId", &x.ReplyToSessionID},
		{"ContentType", &x.ContentType},
	}
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder does not fail
	return quotes.Replace(b.String())
}

// quotes need no numeric entity: JavaScript's client does not decode one.
var quotes = strings.NewReplacer("&#39;", "'", "&#34;", "&quot;")

func element(b *strings.Builder, name, text string) {
	b.WriteString("<" + name + ">" + escape(text) + "</" + name + ">")
}

// write encodes the rule as the service does. The prefix i belongs to the enclosing element, as
// clients that keep a filter as text expect.
func (x *ruleXML) write(b *strings.Builder, created time.Time) {
	b.WriteString(`<RuleDescription xmlns="` + nsConnect + `" xmlns:i="` + nsXSI + `">`)
	f := x.Filter
	b.WriteString(`<Filter i:type="` + escape(f.Type) + `">`)
	switch f.Type {
	case "TrueFilter":
		b.WriteString("<SqlExpression>1=1</SqlExpression><CompatibilityLevel>20</CompatibilityLevel>")
	case "FalseFilter":
		b.WriteString("<SqlExpression>1=0</SqlExpression><CompatibilityLevel>20</CompatibilityLevel>")
	case "CorrelationFilter":
		for _, p := range f.correlation() {
			if *p.value != nil {
				element(b, p.name, **p.value)
			}
		}
		f.Properties.write(b, "Properties")
	default:
		element(b, "SqlExpression", *f.SQL)
		b.WriteString("<CompatibilityLevel>20</CompatibilityLevel>")
		f.Parameters.write(b, "Parameters")
	}
	b.WriteString("</Filter>")
	if x.Action == nil || x.Action.SQL == nil {
		b.WriteString(`<Action i:type="EmptyRuleAction"/>`)
	} else {
		b.WriteString(`<Action i:type="SqlRuleAction">`)
		element(b, "SqlExpression", *x.Action.SQL)
		b.WriteString("<CompatibilityLevel>20</CompatibilityLevel>")
		x.Action.Parameters.write(b, "Parameters")
		b.WriteString("</Action>")
	}
	element(b, "CreatedAt", stamp(created))
	element(b, "Name", x.Name)
	b.WriteString("</RuleDescription>")
}

func (v *valuesXML) write(b *strings.Builder, name string) {
	if v == nil {
		return
	}
	b.WriteString("<" + name + ">")
	for _, x := range v.Items {
		kind := x.Value.Type[strings.IndexByte(x.Value.Type, ':')+1:]
		b.WriteString("<KeyValueOfstringanyType>")
		element(b, "Key", x.Key)
		b.WriteString(`<Value i:type="d6p1:` + escape(kind) + `" xmlns:d6p1="http://www.w3.org/2001/XMLSchema">` + escape(x.Value.Text) + "</Value>")
		b.WriteString("</KeyValueOfstringanyType>")
	}
	b.WriteString("</" + name + ">")
}

// describeValues returns the reverse of values; nil for an empty map.
func describeValues(m map[string]any) *valuesXML {
	if len(m) == 0 {
		return nil
	}
	out := &valuesXML{}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		item := valueXML{Key: k}
		switch v := m[k].(type) {
		case bool:
			item.Value.Type = "boolean"
		case float32, float64:
			item.Value.Type = "double"
		case int8, int16, int32, int64, uint8, uint16, uint32, uint64, int:
			item.Value.Type = "long"
		case time.Time:
			item.Value.Type, item.Value.Text = "dateTime", v.UTC().Format(time.RFC3339Nano)
		default:
			item.Value.Type = "string"
		}
		if item.Value.Text == "" {
			item.Value.Text = fmt.Sprint(m[k])
		}
		out.Items = append(out.Items, item)
	}
	return out
}
