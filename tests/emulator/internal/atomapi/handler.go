package atomapi

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

const (
	maxBody     = 1 << 20
	defaultPage = 100
)

// Authorize reports whether a request may manage the namespace; the error is why the request is not
// authenticated. manage is false for a client that is authenticated and has lesser rights.
type Authorize func(*http.Request) (manage bool, err error)

// Handler serves the administration to clients that authorize accepts, and GET /health to all.
func (a *API) Handler(authorize Authorize) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"status":"healthy","message":"Service Bus emulator is running"}`+"\n")
			return
		}
		manage, err := authorize(r)
		if err != nil {
			writeProblem(w, fail(http.StatusUnauthorized, "SubCode=40100: %s", err))
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.forgetIdle()
		if err := a.serve(w, r, manage); err != nil {
			p, is := errors.AsType[*problem](err)
			if !is {
				p = fail(http.StatusInternalServerError, "%s", err)
			}
			writeProblem(w, p)
		}
	})
}

// address is the parsed path: topic or queue, subscription, rule. list means that the path ends
// before a name.
type address struct {
	name, sub, rule string
	list            bool
	part            string // "", "Subscriptions" or "Rules"
}

func parseAddress(path string) address {
	name, rest, found := cutFold(strings.Trim(path, "/")+"/", "/subscriptions/")
	if !found {
		return address{name: strings.Trim(name, "/")}
	}
	a := address{name: name, part: "Subscriptions", sub: strings.Trim(rest, "/")}
	sub, rest, _ := strings.Cut(rest, "/") // a subscription may itself be named "rules"
	part, rest, found := strings.Cut(rest, "/")
	if !found || !strings.EqualFold(part, "Rules") {
		a.list = a.sub == ""
		return a
	}
	a.sub = sub
	a.part, a.rule = "Rules", strings.Trim(rest, "/")
	a.list = a.rule == ""
	return a
}

func cutFold(s, sep string) (before, after string, found bool) {
	i := strings.Index(strings.ToLower(s), sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func (a *API) serve(w http.ResponseWriter, r *http.Request, manage bool) error {
	switch path := strings.ToLower(strings.Trim(r.URL.Path, "/")); path {
	case "$namespaceinfo":
		return a.namespaceInfo(w, r)
	case "$resources/queues", "$resources/topics":
		if !manage {
			return fail(http.StatusUnauthorized, "Manage,EntityRead claims required for this operation.")
		}
		kind, title := queueKind, "Queues"
		if path == "$resources/topics" {
			kind, title = topicKind, "Topics"
		}
		return a.list(w, r, title, a.entries(sorted(a.entities, kind)))
	}
	at := parseAddress(r.URL.Path)
	if !manage {
		if refusal := a.unprivileged(r.Method, at); refusal != nil {
			return refusal
		}
	}
	switch r.Method {
	case http.MethodGet:
		return a.get(w, r, at)
	case http.MethodPut:
		return a.change(w, r, at)
	case http.MethodDelete:
		return a.delete(w, at)
	}
	return fail(http.StatusMethodNotAllowed, "%s is not supported", r.Method)
}

// unprivileged returns the service's error for a client without the Manage right; nil if the
// service answers that there is no such entity.
func (a *API) unprivileged(method string, at address) error {
	if at.part != "" {
		op := map[string]string{http.MethodGet: "Get", http.MethodPut: "CreateOrUpdate", http.MethodDelete: "Delete"}[method]
		what := strings.TrimSuffix(at.part, "s")
		if at.list {
			op, what = "Enumerate", at.part
		}
		return fail(http.StatusUnauthorized, "401 SubCode=40100: Unauthorized : Unauthorized access for '%s%s' operation on endpoint '%s'.", op, what, at.name)
	}
	switch method {
	case http.MethodPut:
		return fail(http.StatusUnauthorized, "Authorization failed for specified action: Manage,EntityWrite.")
	case http.MethodDelete:
		return fail(http.StatusUnauthorized, "Authorization failed for specified action: Manage,EntityDelete.")
	}
	if a.find(at.name) == nil {
		return nil
	}
	return fail(http.StatusUnauthorized, "Manage,EntityRead claims required for this operation.")
}

func (a *API) entries(list []*entity) []entry {
	out := make([]entry, len(list))
	for i, e := range list {
		out[i] = a.entityEntry(e)
	}
	return out
}

// list writes the page that $skip and $top ask for.
func (a *API) list(w http.ResponseWriter, r *http.Request, title string, all []entry) error {
	q := r.URL.Query()
	skip, top := 0, defaultPage
	var err1, err2 error
	if s := q.Get("$skip"); s != "" {
		skip, err1 = strconv.Atoi(s)
	}
	if s := q.Get("$top"); s != "" {
		top, err2 = strconv.Atoi(s)
	}
	if err := errors.Join(err1, err2); err != nil || skip < 0 || top < 0 {
		return fail(http.StatusBadRequest, "SubCode=40000. $skip and $top must be natural numbers.")
	}
	all = all[min(skip, len(all)):]
	return a.feed(w, r, title, all[:min(top, len(all))])
}

func (a *API) subscription(at address) *entity {
	if t := a.find(at.name); t != nil && t.kind == topicKind {
		return t.subs[strings.ToLower(at.sub)]
	}
	return nil
}

func (a *API) get(w http.ResponseWriter, r *http.Request, at address) error {
	nothing := func() error { return a.feed(w, r, "Publicly Listed Services", nil) }
	if at.part == "" {
		if e := a.find(at.name); e != nil {
			return a.answer(w, r, http.StatusOK, a.entityEntry(e))
		}
		return nothing()
	}
	if at.part == "Subscriptions" && at.list {
		t := a.find(at.name)
		if t == nil || t.kind != topicKind {
			return notFound(at.name)
		}
		return a.list(w, r, "Subscriptions", a.entries(sorted(t.subs, subscriptionKind)))
	}
	sub := a.subscription(at)
	switch {
	case sub == nil:
		return nothing()
	case at.part == "Subscriptions":
		return a.answer(w, r, http.StatusOK, a.entityEntry(sub))
	case at.list:
		all := make([]entry, len(sub.rules))
		for i, x := range sub.rules {
			all[i] = ruleEntry(sub, x)
		}
		return a.list(w, r, "Rules", all)
	}
	if _, x := sub.rule(at.rule); x != nil {
		return a.answer(w, r, http.StatusOK, ruleEntry(sub, x))
	}
	return nothing()
}

// body is an entry with whatever description it carries.
type body struct {
	Content struct {
		Queue        *description `xml:"QueueDescription"`
		Topic        *description `xml:"TopicDescription"`
		Subscription *description `xml:"SubscriptionDescription"`
		Rule         *ruleXML     `xml:"RuleDescription"`
	} `xml:"content"`
}

func (a *API) change(w http.ResponseWriter, r *http.Request, at address) error {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return fail(http.StatusRequestEntityTooLarge, "read the request: %s", err)
	}
	var in body
	if err := xml.Unmarshal(text, &in); err != nil {
		return badRequest(fmt.Errorf("the entry is malformed: %w", err))
	}
	update := r.Header.Get("If-Match") != ""
	c := &in.Content
	if at.list || at.name == "" {
		return fail(http.StatusBadRequest, "SubCode=40000. The address has no name.")
	}
	if at.part == "Rules" {
		sub := a.subscription(at)
		if sub == nil {
			return notFound(at.name + "/Subscriptions/" + at.sub)
		}
		if c.Rule == nil {
			return fail(http.StatusBadRequest, "SubCode=40000. The entry has no RuleDescription.")
		}
		x, err := a.putRule(sub, at.rule, *c.Rule, update)
		if err != nil {
			return err
		}
		return a.answer(w, r, created(!update), ruleEntry(sub, x))
	}
	kind, d := queueKind, c.Queue
	switch {
	case at.part == "Subscriptions":
		kind, d = subscriptionKind, c.Subscription
	case d == nil:
		kind, d = topicKind, c.Topic
	}
	if d == nil {
		return fail(http.StatusBadRequest, "SubCode=40000. The entry has no description for this address.")
	}
	e, isNew, err := a.put(kind, at.name, at.sub, *d, update)
	if err != nil {
		return err
	}
	return a.answer(w, r, created(isNew), a.entityEntry(e))
}

func created(isNew bool) int {
	if isNew {
		return http.StatusCreated
	}
	return http.StatusOK
}

func (a *API) delete(w http.ResponseWriter, at address) error {
	var err error
	if at.part == "Rules" {
		sub := a.subscription(at)
		if sub == nil {
			return notFound(at.name)
		}
		err = a.removeRule(sub, at.rule)
	} else {
		err = a.remove(at.name, at.sub)
	}
	if err == nil {
		w.WriteHeader(http.StatusOK)
	}
	return err
}

func (a *API) namespaceInfo(w http.ResponseWriter, r *http.Request) error {
	return a.answer(w, r, http.StatusOK, entry{"$namespaceinfo", a.name, a.created, a.created, func(b *strings.Builder) error {
		b.WriteString(`<NamespaceInfo xmlns="` + nsConnect + `" xmlns:i="` + nsXSI + `">`)
		element(b, "CreatedTime", stamp(a.created))
		if a.premium {
			b.WriteString("<MessagingSKU>Premium</MessagingSKU><MessagingUnits>1</MessagingUnits>")
		} else {
			b.WriteString("<MessagingSKU>Standard</MessagingSKU>")
		}
		element(b, "ModifiedTime", stamp(a.created))
		element(b, "Name", a.name)
		b.WriteString("<NamespaceType>Messaging</NamespaceType></NamespaceInfo>")
		return nil
	}})
}
