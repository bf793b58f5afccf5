package atomapi

import (
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/broker"
)

// The rules of a subscription as AMQP clients manage them. Their changes are visible over HTTP, and
// vice versa.

// AddRule adds a rule to the subscription at path.
func (a *API) AddRule(path string, r broker.Rule) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	sub, err := a.ruled(path)
	if err != nil {
		return err
	}
	if _, now := sub.rule(r.Name); now != nil {
		return &broker.Error{Condition: broker.AlreadyExists, Description: "The messaging entity '" + sub.path + "/Rules/" + r.Name + "' already exists."}
	}
	sub.rules = append(sub.rules, adoptRules([]broker.Rule{r}, time.Now().UTC())...)
	return a.broker.SetRules(sub.path, sub.compiled())
}

// RemoveRule removes a rule of the subscription at path.
func (a *API) RemoveRule(path, name string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	sub, err := a.ruled(path)
	if err != nil {
		return err
	}
	if _, now := sub.rule(name); now == nil {
		return missing(sub.path + "/Rules/" + name)
	}
	return a.removeRule(sub, name)
}

// Rules returns the rules of the subscription at path, in the order in which they were added, and
// their times.
func (a *API) Rules(path string) ([]broker.Rule, []time.Time, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	sub, err := a.ruled(path)
	if err != nil {
		return nil, nil, err
	}
	rules, created := make([]broker.Rule, len(sub.rules)), make([]time.Time, len(sub.rules))
	for i, r := range sub.rules {
		rules[i], created[i] = r.compiled, r.created
	}
	return rules, created, nil
}

// ruled returns the subscription at path.
func (a *API) ruled(path string) (*entity, error) {
	if sub := a.subscription(parseAddress(path)); sub != nil {
		return sub, nil
	}
	return nil, missing(path)
}

func missing(path string) error {
	return &broker.Error{Condition: broker.NotFound, Description: "The messaging entity '" + path + "' could not be found."}
}
