package console

import (
	"context"
	"html"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/shared/terminal"
)

// page is a page of the console.
type page struct {
	Path, Name string
	// Regions are the templates of the parts that the stream replaces; Fixed is that of what is
	// behind them, such as forms.
	Regions []string
	Fixed   string
	// shown reports whether a home has the page, and Hidden that the navigation leaves it out.
	shown  func(*Home) bool
	Hidden bool
}

func always(*Home) bool { return true }

// pages are all pages, in the order of the navigation.
var pages = []*page{
	{Path: "/", Name: "Flow", Regions: []string{"run", "flow", "events"}, Fixed: "harm", shown: always},
	{Path: "/leadership", Name: "Leadership", Regions: []string{"leadership"}, Fixed: "harm-leader", shown: always},
	{Path: "/parked", Name: "Parked", Regions: []string{"parked"}, Fixed: "harm-poison", shown: always},
	{
		Path: "/parked/aggregate", Name: "Parked aggregate", Regions: []string{"aggregate"}, Fixed: "repair", Hidden: true,
		shown: func(h *Home) bool { return h.Show != nil },
	},
	{Path: "/streams", Name: "Streams", Regions: []string{"streams"}, shown: always},
	{Path: "/builds", Name: "Builds and snapshots", Regions: []string{"builds"}, shown: always},
	{Path: "/trace", Name: "Trace", Regions: []string{"trace"}, shown: func(h *Home) bool { return h.Trace != nil }},
}

func pageAt(path string) *page {
	for _, p := range pages {
		if p.Path == path {
			return p
		}
	}
	return nil
}

var templates = parseAll()

// model is what the templates read.
type model struct {
	Base, Title, Token string
	Home               *Home
	Page               *page
	Pages              []*page
	View               View
	Answers            []answer
	Terms              []term // newest first
	Aggregate          string // that the page is about
	Parked             []Parked
	Groups             []group
	Shown              Parked
	Trace              Trace
	Over               bool   // the run of the local stack has ended
	Problem            string // why the page has no content
	// InTheWay is the message that a drop gives up.
	InTheWay string

	history history
}

// group are parked aggregates of one reason.
type group struct {
	Reason     string
	Aggregates []Parked
}

// regions returns the HTML of a page's regions for the present View. All streams of a page share
// one rendering.
func (c *Console) regions(ctx context.Context, p *page, aggregate string) map[string]string {
	key := p.Path + "?" + aggregate
	c.mu.Lock()
	render, ok := c.pages[key]
	if !ok {
		render = sync.OnceValue(func() map[string]string {
			m, _ := c.model(context.WithoutCancel(ctx), p, aggregate)
			html := map[string]string{}
			for _, name := range append([]string{"answers", "problems", "head"}, p.Regions...) {
				html[name] = m.render(name)
			}
			return html
		})
		c.pages[key] = render
	}
	c.mu.Unlock()
	return render()
}

// page renders the whole page.
func (m *model) page() (markup, error) { return templates.execute("page", m, m.functions()) }

// render renders a region.
func (m *model) render(name string) string {
	text, err := templates.execute("region-"+name, m, m.functions())
	if err != nil {
		return html.EscapeString(err.Error())
	}
	return string(text)
}

// functions returns what the templates of the page call.
func (m *model) functions() map[string]any {
	all := maps.Clone(functions)
	maps.Copy(all, map[string]any{
		"region": func(name string) markup { return markup(m.render(name)) },
		"spark":  m.spark, "rate": m.rate, "harm": m.harm, "pace": m.history.pace,
	})
	return all
}

// harm returns the harm of the kinds named, all of them without a name.
func (m *model) harm(kinds ...string) (list []Harm) {
	for _, h := range m.Home.Harms {
		if len(kinds) == 0 || slices.Contains(kinds, h.Kind) {
			list = append(list, h)
		}
	}
	return list
}

// spark returns a sparkline by the name of its series.
func (m *model) spark(name string) markup {
	s := seriesOf[name]
	return sparkline(s.label, s.unit, m.values(name))
}

// rate returns the newest value of a series as text.
func (m *model) rate(name string) string {
	values := m.values(name)
	if len(values) == 0 || values[len(values)-1] < 0 {
		return "–"
	}
	return short(values[len(values)-1])
}

func (m *model) values(name string) []float64 {
	s := seriesOf[name]
	if s.rate {
		return m.history.rates(s.value)
	}
	return m.history.series(s.value)
}

// seriesOf are the series by name.
var seriesOf = map[string]struct {
	label, unit string
	rate        bool
	value       func(sample) int64
}{
	"inserted":  {"inserted a second", "", true, func(s sample) int64 { return s.inserted }},
	"published": {"published a second", "", true, func(s sample) int64 { return s.published }},
	"applied":   {"applied a second", "", true, func(s sample) int64 { return s.applied }},
	"in-flight": {"events in flight", "", false, func(s sample) int64 { return s.inFlight }},
	"active":    {"messages that wait", "", false, func(s sample) int64 { return s.active }},
	"margin":    {"fence margin", " ms", false, func(s sample) int64 { return s.margin }},
	"lag":       {"lag", " ms", false, func(s sample) int64 { return s.lag }},
	"parked":    {"parked aggregates", "", false, func(s sample) int64 { return s.parked }},
}

// model returns what a page shows now; found is false if it is about an aggregate that does not
// exist.
func (c *Console) model(ctx context.Context, p *page, aggregate string) (m *model, found bool) {
	c.mu.Lock()
	m = &model{
		Base: c.home.Base, Title: title(p.Name, c.home.Title), Token: c.token, Home: &c.home, Page: p, View: c.view,
		Answers: c.recentAnswers(), Aggregate: aggregate, history: c.history,
	}
	m.history.terms = nil
	m.Terms = slices.Clone(c.history.terms)
	c.mu.Unlock()
	m.Terms = measured(m.Terms, m.View.Run)
	m.Over = m.View.Run != nil && m.View.Run.Verdict != ""
	slices.Reverse(m.Terms)
	for _, p := range pages {
		if !p.Hidden && p.shown(&c.home) {
			m.Pages = append(m.Pages, p)
		}
	}
	var err error
	switch {
	case p.Path == "/parked" && c.home.Parked != nil:
		m.Parked, err = lookUp(ctx, c, "parked", c.home.Parked)
		m.Groups = grouped(m.Parked)
	case p.Path == "/parked/aggregate" && aggregate != "":
		m.Shown, err = lookUp(ctx, c, "show "+aggregate, func(ctx context.Context) (Parked, error) { return c.home.Show(ctx, aggregate) })
		m.InTheWay = inTheWay(m.Shown)
	case p.Path == "/trace" && aggregate != "":
		m.Trace, err = lookUp(ctx, c, "trace "+aggregate, func(ctx context.Context) (Trace, error) { return c.home.Trace(ctx, aggregate) })
	}
	if err != nil {
		m.Problem = terminal.Lines(err.Error())
	}
	return m, err == nil
}

// grouped returns parked aggregates by reason.
func grouped(all []Parked) (groups []group) {
	by := map[string][]Parked{}
	for _, p := range all {
		by[p.Reason] = append(by[p.Reason], p)
	}
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		groups = append(groups, group{reason, by[reason]})
	}
	return groups
}

const (
	// lookUpFor is how long an answer of the services is shown before they are asked again.
	lookUpFor = 2 * time.Second
	// maxLookUps bounds the answers that are kept.
	maxLookUps = 32
)

// lookUps are answers of the services that a View does not contain.
type lookUps struct {
	mu sync.Mutex // guards by
	by map[string]*lookedUp
}

type lookedUp struct {
	mu    sync.Mutex // guards everything below; held while the services are asked
	at    time.Time
	value any
	err   error
}

// lookUp returns an answer that is at most two seconds old.
func lookUp[T any](ctx context.Context, c *Console, key string, ask func(context.Context) (T, error)) (T, error) {
	c.lookUps.mu.Lock()
	if c.lookUps.by == nil || len(c.lookUps.by) >= maxLookUps {
		c.lookUps.by = map[string]*lookedUp{}
	}
	one := c.lookUps.by[key]
	if one == nil {
		one = &lookedUp{}
		c.lookUps.by[key] = one
	}
	c.lookUps.mu.Unlock()
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.at.IsZero() || time.Since(one.at) > lookUpFor {
		asking, cancel := context.WithTimeout(ctx, viewTimeout)
		defer cancel()
		one.value, one.err = ask(asking)
		one.at = time.Now()
	}
	value, _ := one.value.(T)
	return value, one.err
}

// forget makes the next lookUp ask the services.
func (c *Console) forget() {
	c.lookUps.mu.Lock()
	defer c.lookUps.mu.Unlock()
	c.lookUps.by = nil
}

// inTheWay returns the message that a drop gives up: the one that parked the aggregate or, if an
// operator parked it because of no event, the first one that waits.
func inTheWay(p Parked) string {
	if p.MessageID == "" && len(p.Waiting) > 0 {
		return p.Waiting[0].MessageID
	}
	return p.MessageID
}
