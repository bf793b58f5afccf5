// Package filter decides which messages a subscription takes: the true, false, correlation and SQL
// filters of Service Bus, and the SQL actions that annotate a copy.
//
// The SQL is the service's common subset: AND, OR, NOT, the comparisons, + - * / %, LIKE with
// ESCAPE, IN, IS NULL, EXISTS, parameters, and properties of the scopes user and sys. Logic is
// three-valued: a comparison with a property that is missing, or of values that cannot be compared,
// is unknown, and a filter selects only what is true. Not provided: the functions newid and
// property, and actions on system properties; both are errors that name them.
package filter

import (
	"fmt"
	"strings"
)

// Message gives filters access to a message. System names are in lower case.
type Message interface {
	User(name string) (value any, found bool)
	System(name string) (value any, found bool)
}

// Filter selects messages.
type Filter interface {
	// Match fails when the filter cannot be evaluated on m.
	Match(m Message) (bool, error)
}

// Empty is a message without properties.
var Empty Message = empty{}

type empty struct{}

func (empty) User(string) (any, bool)   { return nil, false }
func (empty) System(string) (any, bool) { return nil, false }

// Const selects everything or nothing.
type Const bool

// Match implements Filter.
func (c Const) Match(Message) (bool, error) { return bool(c), nil }

// Correlation selects messages all of whose named properties are equal to the given values.
type Correlation struct {
	System map[string]string // by lower-case name without "sys."
	User   map[string]any
}

// systemNames are those a filter may use.
var systemNames = map[string]bool{
	"messageid": true, "correlationid": true, "label": true, "subject": true, "to": true,
	"replyto": true, "replytosessionid": true, "sessionid": true, "contenttype": true,
	"partitionkey": true,
}

// Validate reports a system property that does not exist.
func (c *Correlation) Validate() error {
	for name := range c.System {
		if !systemNames[name] {
			return fmt.Errorf("correlation filter: system property %q is not supported", name)
		}
	}
	return nil
}

// Match implements Filter.
func (c *Correlation) Match(m Message) (bool, error) {
	for name, want := range c.System {
		if got, found := m.System(name); !found || fmt.Sprint(got) != want {
			return false, nil
		}
	}
	for name, want := range c.User {
		got, found := m.User(name)
		if !found {
			return false, nil
		}
		if r, known := compare(got, want); !known || r != 0 {
			return false, nil
		}
	}
	return true, nil
}

var (
	_ Filter = Const(true)
	_ Filter = (*Correlation)(nil)
	_ Filter = (*SQL)(nil)
)

// Removed, as a property's new value, means that the property goes away.
type Removed struct{}

// Action changes properties of a copy.
type Action struct {
	text  string
	steps []step
}

// String returns the action as it was written.
func (a *Action) String() string { return a.text }

type step struct {
	name   string
	value  node // nil removes
	remove bool
}

// changed is a message with the changes of earlier steps.
type changed struct {
	Message
	set map[string]any
}

func (c changed) User(name string) (any, bool) {
	if v, found := c.set[name]; found {
		if _, removed := v.(Removed); removed {
			return nil, false
		}
		return v, true
	}
	return c.Message.User(name)
}

// Apply returns the properties to set, with Removed for those to take away.
func (a *Action) Apply(m Message) (map[string]any, error) {
	c := changed{Message: m, set: make(map[string]any, len(a.steps))}
	for _, s := range a.steps {
		if s.remove {
			c.set[s.name] = Removed{}
			continue
		}
		v, err := s.value.eval(c)
		if err != nil {
			return nil, fmt.Errorf("set %s: %w", s.name, err)
		}
		c.set[s.name] = v
	}
	return c.set, nil
}

// ParseAction reads SET and REMOVE statements, which may be separated by semicolons.
func ParseAction(text string, params map[string]any) (*Action, error) {
	p, err := newParser(text, params)
	if err != nil {
		return nil, err
	}
	a := &Action{text: text}
	for p.tok.kind != end {
		if p.symbol(";") {
			continue
		}
		remove := p.keyword("REMOVE")
		if !remove && !p.keyword("SET") {
			return nil, p.unexpected("SET or REMOVE")
		}
		prop, err := p.property()
		if err != nil {
			return nil, err
		}
		if prop.system {
			return nil, fmt.Errorf("sql action: changing system property %q is not supported by this emulator", prop.name)
		}
		s := step{name: prop.name, remove: remove}
		if !remove {
			if !p.symbol("=") {
				return nil, p.unexpected("=")
			}
			if s.value, err = p.sum(); err != nil {
				return nil, err
			}
		}
		a.steps = append(a.steps, s)
	}
	if p.err != nil {
		return nil, p.err
	}
	if len(a.steps) == 0 {
		return nil, fmt.Errorf("sql action: no statement in %q", strings.TrimSpace(text))
	}
	return a, nil
}
