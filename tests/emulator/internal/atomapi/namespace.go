package atomapi

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/broker"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/filter"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/isoduration"
)

// The kinds of description.
const (
	queueKind        = "QueueDescription"
	topicKind        = "TopicDescription"
	subscriptionKind = "SubscriptionDescription"
)

// API administers one namespace.
type API struct {
	broker  *broker.Broker
	name    string
	premium bool
	created time.Time

	mu       sync.Mutex
	entities map[string]*entity // queues and topics by lower-case name
}

// entity is a queue, topic or subscription. Guarded by API.mu.
type entity struct {
	kind             string
	name             string
	path             string
	desc             description
	created, updated time.Time
	subs             map[string]*entity // of a topic
	rules            []*rule            // of a subscription
}

type rule struct {
	xml      ruleXML
	compiled broker.Rule
	created  time.Time
}

// New administers a broker that was built from cfg and that no other caller changes.
func New(b *broker.Broker, cfg broker.Config, name string, premium bool) *API {
	a := &API{broker: b, name: name, premium: premium, created: time.Now(), entities: make(map[string]*entity)}
	for _, q := range cfg.Queues {
		d := description{}
		d.fromInbound(q.Inbound)
		d.fromOutbound(q.Outbound)
		a.adopt(queueKind, q.Name, d)
	}
	for _, t := range cfg.Topics {
		d := description{}
		d.fromInbound(t.Inbound)
		e := a.adopt(topicKind, t.Name, d)
		for _, s := range t.Subscriptions {
			d := description{
				DefaultMessageTimeToLive: new(isoduration.Format(s.DefaultMessageTimeToLive)),
				AutoDeleteOnIdle:         new(isoduration.Format(s.AutoDeleteOnIdle)),
			}
			d.fromOutbound(s.Outbound)
			d.DeadLetteringOnFilterEvaluationExceptions = new(s.DeadLetteringOnFilterErrors)
			d.complete(subscriptionKind, premium)
			sub := &entity{kind: subscriptionKind, name: s.Name, path: e.name + "/Subscriptions/" + s.Name, desc: d, created: a.created, updated: a.created}
			sub.rules = adoptRules(s.Rules, a.created)
			e.subs[strings.ToLower(s.Name)] = sub
		}
	}
	return a
}

func (a *API) adopt(kind, name string, d description) *entity {
	d.complete(kind, a.premium)
	e := &entity{kind: kind, name: name, path: name, desc: d, created: a.created, updated: a.created, subs: map[string]*entity{}}
	a.entities[strings.ToLower(name)] = e
	return e
}

// adoptRules describes rules from a configuration. What a compiled rule does not reveal is
// described by its kind only.
func adoptRules(rules []broker.Rule, created time.Time) []*rule {
	if rules == nil {
		return []*rule{defaultRule(created)}
	}
	out := make([]*rule, 0, len(rules))
	for _, r := range rules {
		x := ruleXML{Name: r.Name, Filter: &filterXML{Type: "TrueFilter"}}
		switch f := r.Filter.(type) {
		case filter.Const:
			if !f {
				x.Filter.Type = "FalseFilter"
			}
		case *filter.SQL:
			x.Filter = &filterXML{Type: "SqlFilter", SQL: new(f.String())}
		case *filter.Correlation:
			x.Filter.Type = "CorrelationFilter"
			for _, p := range x.Filter.correlation() {
				if v, set := f.System[strings.ToLower(p.name)]; set {
					*p.value = &v
				}
			}
			x.Filter.Properties = describeValues(f.User)
		}
		if r.Action != nil {
			x.Action = &actionXML{Type: "SqlRuleAction", SQL: new(r.Action.String())}
		}
		out = append(out, &rule{xml: x, compiled: r, created: created})
	}
	return out
}

func defaultRule(now time.Time) *rule {
	return &rule{
		xml:      ruleXML{Name: "$Default", Filter: &filterXML{Type: "TrueFilter"}},
		compiled: broker.Rule{Name: "$Default"}, created: now,
	}
}

func (d *description) fromInbound(i broker.Inbound) {
	d.RequiresDuplicateDetection = &i.RequiresDuplicateDetection
	if i.DuplicateDetectionWindow > 0 {
		d.DuplicateDetectionHistoryTimeWindow = new(isoduration.Format(i.DuplicateDetectionWindow))
	}
	d.DefaultMessageTimeToLive = new(isoduration.Format(i.DefaultMessageTimeToLive))
	d.EnablePartitioning = &i.EnablePartitioning
	d.AutoDeleteOnIdle = new(isoduration.Format(i.AutoDeleteOnIdle))
	if i.MaxMessageBytes > 0 {
		d.MaxMessageSizeInKilobytes = new(int64(i.MaxMessageBytes >> 10))
	}
}

func (d *description) fromOutbound(o broker.Outbound) {
	if o.LockDuration > 0 {
		d.LockDuration = new(isoduration.Format(o.LockDuration))
	}
	if o.MaxDeliveryCount > 0 {
		d.MaxDeliveryCount = &o.MaxDeliveryCount
	}
	d.RequiresSession = &o.RequiresSession
	d.DeadLetteringOnMessageExpiration = &o.DeadLetteringOnMessageExpiration
	if o.ForwardTo != "" {
		d.ForwardTo = &o.ForwardTo
	}
	if o.ForwardDeadLetteredMessagesTo != "" {
		d.ForwardDeadLetteredMessagesTo = &o.ForwardDeadLetteredMessagesTo
	}
}

// problem is an answer that is not 2xx.
type problem struct {
	status int
	detail string
}

func (p *problem) Error() string { return p.detail }

func fail(status int, format string, args ...any) *problem {
	return &problem{status: status, detail: fmt.Sprintf(format, args...)}
}

func notFound(path string) *problem {
	return fail(http.StatusNotFound, "SubCode=40400. Not Found. The messaging entity '%s' could not be found.", path)
}

func badRequest(err error) *problem {
	return fail(http.StatusBadRequest, "SubCode=40000. %s", err)
}

func (a *API) find(name string) *entity { return a.entities[strings.ToLower(name)] }

// owner returns the map an address belongs in; nil when its topic does not exist.
func (a *API) owner(topic, sub string) map[string]*entity {
	if sub == "" {
		return a.entities
	}
	if t := a.find(topic); t != nil && t.kind == topicKind {
		return t.subs
	}
	return nil
}

// put creates an entity or, with update, changes one.
func (a *API) put(kind, topic, sub string, d description, update bool) (*entity, bool, error) {
	name, path := topic, topic
	if kind == subscriptionKind {
		name, path = sub, topic+"/Subscriptions/"+sub
	}
	owner := a.owner(topic, sub)
	if owner == nil {
		return nil, false, notFound(topic)
	}
	now := owner[strings.ToLower(name)]
	switch {
	case update && (now == nil || now.kind != kind):
		return nil, false, notFound(path)
	case !update && now != nil:
		return nil, false, fail(http.StatusConflict, "SubCode=40900. Conflict. The messaging entity '%s' already exists.", path)
	}
	if err := d.unsupported(); err != nil {
		return nil, false, badRequest(err)
	}
	if d.MaxMessageSizeInKilobytes != nil && !a.premium && *d.MaxMessageSizeInKilobytes != 256 {
		return nil, false, badRequest(errors.New("MaxMessageSizeInKilobytes can only be set in the Premium tier"))
	}
	for _, to := range []string{pathOf(d.ForwardTo), pathOf(d.ForwardDeadLetteredMessagesTo)} {
		if to != "" && a.find(to) == nil {
			return nil, false, badRequest(fmt.Errorf("the forwarding destination '%s' does not exist", to))
		}
	}
	if update {
		return now, false, a.update(now, d)
	}
	e := &entity{kind: kind, name: name, path: path, desc: d, created: time.Now().UTC(), subs: map[string]*entity{}}
	e.updated = e.created
	if is(d.EnablePartitioning) && !a.premium { // the service makes 16 partitions of that size
		or(&e.desc.MaxSizeInMegabytes, 1024)
		e.desc.MaxSizeInMegabytes = new(*e.desc.MaxSizeInMegabytes * 16)
	}
	if err := a.create(e, topic); err != nil {
		return nil, false, badRequest(err)
	}
	owner[strings.ToLower(name)] = e
	return e, true, nil
}

func (a *API) create(e *entity, topic string) error {
	e.desc.complete(e.kind, a.premium)
	var p problems
	switch e.kind {
	case queueKind:
		q := broker.Queue{Name: e.name, Inbound: e.desc.inbound(&p), Outbound: e.desc.outbound(&p)}
		if err := p.err(); err != nil {
			return err
		}
		return a.broker.CreateQueue(q)
	case topicKind:
		t := broker.Topic{Name: e.name, Inbound: e.desc.inbound(&p)}
		if err := p.err(); err != nil {
			return err
		}
		return a.broker.CreateTopic(t)
	}
	s := e.desc.subscription(e.name, &p)
	if err := p.err(); err != nil {
		return err
	}
	first := defaultRule(e.created)
	if x := e.desc.DefaultRuleDescription; x != nil {
		compiled, err := x.compile()
		if err != nil {
			return err
		}
		if x.Name == "" {
			x.Name = "$Default"
		}
		first = &rule{xml: *x, compiled: compiled, created: e.created}
	}
	e.desc.DefaultRuleDescription = nil // the service does not return it
	e.rules = []*rule{first}
	s.Rules = e.compiled()
	return a.broker.CreateSubscription(topic, s)
}

// compiled returns the rules for the broker: none to evaluate if there is only the true filter.
func (e *entity) compiled() []broker.Rule {
	if len(e.rules) == 1 && e.rules[0].compiled.Filter == nil && e.rules[0].compiled.Action == nil {
		return nil
	}
	out := make([]broker.Rule, len(e.rules))
	for i, r := range e.rules {
		out[i] = r.compiled
	}
	return out
}

func (a *API) update(e *entity, d description) error {
	if err := d.fixed(&e.desc, e.kind); err != nil {
		return badRequest(err)
	}
	d.DefaultRuleDescription = nil
	or(&d.RequiresSession, is(e.desc.RequiresSession))
	or(&d.RequiresDuplicateDetection, is(e.desc.RequiresDuplicateDetection))
	or(&d.EnablePartitioning, is(e.desc.EnablePartitioning))
	d.complete(e.kind, a.premium)
	var p problems
	var err error
	if e.kind != subscriptionKind {
		in := d.inbound(&p)
		if err = p.err(); err == nil {
			err = a.broker.UpdateInbound(e.path, in)
		}
	}
	if e.kind != topicKind && err == nil {
		s := d.subscription(e.name, &p)
		if err = p.err(); err == nil {
			err = a.broker.UpdateOutbound(e.path, s)
		}
	}
	if err != nil {
		return badRequest(err)
	}
	e.desc, e.updated = d, time.Now().UTC()
	return nil
}

func (a *API) remove(topic, sub string) error {
	owner := a.owner(topic, sub)
	key := strings.ToLower(cmp.Or(sub, topic))
	e := owner[key]
	if e == nil {
		return notFound(topic)
	}
	if err := a.broker.Delete(e.path); err != nil {
		return badRequest(err)
	}
	delete(owner, key)
	return nil
}

// forgetIdle removes the entities that the broker deleted because they were idle.
func (a *API) forgetIdle() {
	a.broker.Advance()
	gone := func(_ string, e *entity) bool { return !a.broker.Exists(e.path) }
	maps.DeleteFunc(a.entities, gone)
	for _, e := range a.entities {
		maps.DeleteFunc(e.subs, gone)
	}
}

func (e *entity) rule(name string) (int, *rule) {
	i := slices.IndexFunc(e.rules, func(r *rule) bool { return strings.EqualFold(r.xml.Name, name) })
	if i < 0 {
		return i, nil
	}
	return i, e.rules[i]
}

func (a *API) putRule(sub *entity, name string, x ruleXML, update bool) (*rule, error) {
	if x.Name == "" {
		x.Name = name
	}
	i, now := sub.rule(name)
	switch {
	case update && now == nil:
		return nil, notFound(sub.path + "/Rules/" + name)
	case !update && now != nil:
		return nil, fail(http.StatusConflict, "SubCode=40900. Conflict. The rule '%s' already exists.", name)
	}
	compiled, err := x.compile()
	if err != nil {
		return nil, badRequest(err)
	}
	r := &rule{xml: x, compiled: compiled, created: time.Now().UTC()}
	if update {
		sub.rules[i] = r
	} else {
		sub.rules = append(sub.rules, r)
	}
	return r, a.broker.SetRules(sub.path, sub.compiled())
}

func (a *API) removeRule(sub *entity, name string) error {
	i, _ := sub.rule(name)
	if i < 0 {
		return notFound(sub.path + "/Rules/" + name)
	}
	sub.rules = slices.Delete(sub.rules, i, i+1)
	return a.broker.SetRules(sub.path, sub.compiled())
}

// sorted lists entities of one kind by name.
func sorted(m map[string]*entity, kind string) []*entity {
	var out []*entity
	for _, e := range m {
		if e.kind == kind {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(x, y *entity) int { return strings.Compare(x.name, y.name) })
	return out
}
