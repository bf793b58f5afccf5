package atomapi

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/filter"
)

const (
	nsAtom   = "http://www.w3.org/2005/Atom"
	nsCounts = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
)

// stamp writes a time as the service does; the zero time has no zone.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "0001-01-01T00:00:00"
	}
	return t.UTC().Format("2006-01-02T15:04:05.0000000Z")
}

// describe encodes an entity with its counts of this moment.
func (a *API) describe(b *strings.Builder, e *entity) error {
	d := e.desc
	d.XMLName = xml.Name{Local: e.kind}
	d.XMLNS, d.XMLNSI = nsConnect, nsXSI
	s := a.broker.Stats(e.path)
	d.CreatedAt, d.UpdatedAt, d.AccessedAt = stamp(e.created), stamp(e.updated), stamp(s.AccessedAt)
	if e.kind == subscriptionKind {
		d.AccessedAt = stamp(e.created)
	} else {
		d.SizeInBytes = new(a.broker.Bytes(e.path))
	}
	active := s.Active - s.Deferred
	var inner strings.Builder
	for _, c := range []struct {
		name  string
		count int
	}{
		{"ActiveMessageCount", active},
		{"DeadLetterMessageCount", s.DeadLettered},
		{"ScheduledMessageCount", s.Scheduled},
		{"TransferDeadLetterMessageCount", s.TransferDeadLettered},
		{"TransferMessageCount", s.Transferring},
	} {
		fmt.Fprintf(&inner, `<d2p1:%s>%d</d2p1:%[1]s>`, c.name, c.count)
	}
	d.CountDetails = &counts{Namespace: nsCounts, Inner: inner.String()}
	if e.kind != topicKind {
		d.MessageCount = new(int64(s.Active + s.DeadLettered + s.Scheduled + s.TransferDeadLettered + s.Transferring))
	} else {
		a.countRules(e, &d)
	}
	text, err := xml.Marshal(d)
	if err != nil {
		return fmt.Errorf("encode %s: %w", e.path, err)
	}
	b.WriteString(quotes.Replace(string(text)))
	return nil
}

func (a *API) countRules(e *entity, d *description) {
	sql, correlation := 0, 0
	for _, sub := range e.subs {
		for _, r := range sub.rules {
			if _, is := r.compiled.Filter.(*filter.Correlation); is {
				correlation++
			} else {
				sql++ // the true and false filters are SQL to the service
			}
		}
	}
	d.SubscriptionCount, d.SQLFilterCount, d.CorrelationFilterCount = new(len(e.subs)), &sql, &correlation
}

// entry is one element of an answer.
type entry struct {
	path, title      string
	created, updated time.Time
	content          func(*strings.Builder) error
}

func (a *API) entityEntry(e *entity) entry {
	return entry{e.path, e.name, e.created, e.updated, func(b *strings.Builder) error { return a.describe(b, e) }}
}

func ruleEntry(sub *entity, r *rule) entry {
	return entry{sub.path + "/Rules/" + r.xml.Name, r.xml.Name, r.created, r.created, func(b *strings.Builder) error {
		r.xml.write(b, r.created)
		return nil
	}}
}

func (a *API) writeEntry(b *strings.Builder, r *http.Request, x entry) error {
	href := escape("https://" + r.Host + "/" + x.path + "?" + r.URL.RawQuery)
	b.WriteString(`<entry xmlns="` + nsAtom + `"><id>` + href + `</id><title type="text">` + escape(x.title) + `</title>`)
	element(b, "published", stamp(x.created))
	element(b, "updated", stamp(x.updated))
	b.WriteString(`<author><name>` + escape(a.name) + `</name></author><link rel="self" href="` + href + `"/><content type="application/xml">`)
	if err := x.content(b); err != nil {
		return err
	}
	b.WriteString("</content></entry>")
	return nil
}

// answer writes one entry.
func (a *API) answer(w http.ResponseWriter, r *http.Request, status int, x entry) error {
	var b strings.Builder
	if err := a.writeEntry(&b, r, x); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/atom+xml;type=entry;charset=utf-8")
	w.WriteHeader(status)
	_, err := w.Write([]byte(b.String()))
	return err
}

// feed writes entries. Without any, it is the service's answer for an address with no content.
func (a *API) feed(w http.ResponseWriter, r *http.Request, title string, entries []entry) error {
	var b strings.Builder
	b.WriteString(`<feed xmlns="` + nsAtom + `"><title type="text">` + escape(title) + `</title><id>` + escape("https://"+r.Host+r.URL.RequestURI()) + `</id>`)
	element(&b, "updated", stamp(time.Now()))
	for _, x := range entries {
		if err := a.writeEntry(&b, r, x); err != nil {
			return err
		}
	}
	b.WriteString("</feed>")
	w.Header().Set("Content-Type", "application/atom+xml;type=feed;charset=utf-8")
	_, err := w.Write([]byte(b.String()))
	return err
}

// textOnly escapes what XML requires and leaves apostrophes, which clients search for.
var textOnly = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

func writeProblem(w http.ResponseWriter, p *problem) {
	w.Header().Set("Content-Type", "application/xml; charset=utf-8")
	w.WriteHeader(p.status)
	_, _ = fmt.Fprintf(w, "<Error><Code>%d</Code><Detail>%s</Detail></Error>", p.status, textOnly.Replace(p.detail))
}
