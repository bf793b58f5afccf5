package console

import "time"

const (
	// kept is how many samples are kept: ten minutes.
	kept = 600
	// maxTerms is how many terms are kept.
	maxTerms = 50
	// recent is the number of samples over which a rate is computed.
	recent = 3
)

// sample holds the numbers of one View. Those below 0 are unknown.
type sample struct {
	at                                          time.Time
	inserted, published, applied                int64
	inFlight, active, dead, parked, lag, margin int64
	sessions                                    int64
	building, snapshot                          int64
}

// term is one leadership as the console saw it.
type term struct {
	Stream, Leader string
	Epoch          int64
	From, Seen     time.Time
	// Ended is how the term ended, and Failover how long the stream then had no leader; both are
	// empty while the term lasts.
	Ended, Failover string
	Current         bool
}

// history holds ten minutes of samples, and the newest terms. The zero value is ready to use; its
// owner guards it.
type history struct {
	samples [kept]sample
	count   int64  // samples ever added
	terms   []term // oldest first
}

// add records the View of a moment.
func (h *history) add(now time.Time, v View) {
	h.samples[h.count%kept] = sampleOf(now, v)
	h.count++
	for _, s := range v.Streams {
		h.follow(v, s)
	}
}

// follow records who leads a stream.
func (h *history) follow(v View, s Stream) {
	var last *term
	for i := range h.terms {
		if h.terms[i].Stream == s.Name {
			last = &h.terms[i]
		}
	}
	if last != nil && s.Leader != "" && last.Epoch == s.Epoch && last.Leader == s.Leader {
		last.Seen, last.Current, last.Ended, last.Failover = v.At, true, "", ""
		return
	}
	if last != nil && last.Current {
		last.Current, last.Ended = false, "its leader no longer leads"
	}
	if s.Leader == "" {
		return
	}
	if last != nil && last.Failover == "" {
		last.Failover = "within " + duration(v.At.Sub(last.Seen))
	}
	h.terms = append(h.terms, term{Stream: s.Name, Leader: s.Leader, Epoch: s.Epoch, From: v.At, Seen: v.At, Current: true})
	h.terms = h.terms[max(0, len(h.terms)-maxTerms):]
}

// measured adds to the terms what the run of a local stack has measured.
func measured(terms []term, r *Run) []term {
	if r == nil {
		return terms
	}
	for i := range terms {
		for _, f := range r.Failovers {
			if f.Epoch == terms[i].Epoch {
				terms[i].Ended = f.Kind
				terms[i].Failover = milliseconds(float64(f.PublishAfterMS)) + " until the next leader published, " +
					milliseconds(float64(f.LeadsAfterMS)) + " until it led"
			}
		}
	}
	return terms
}

func sampleOf(now time.Time, v View) sample {
	s := sample{at: now, inserted: -1, published: -1, applied: -1, active: -1, dead: -1, parked: -1, lag: -1, margin: -1, inFlight: -1, sessions: -1, building: -1, snapshot: -1}
	for _, of := range v.Streams {
		add(&s.published, of.Published)
		if of.Snapshot != nil {
			add(&s.snapshot, &of.Snapshot.Done)
		}
		add(&s.inFlight, of.InFlight)
		if of.FenceMarginMS != nil {
			s.margin = *of.FenceMarginMS
		}
	}
	for _, of := range v.Projections {
		if of.Build != nil {
			add(&s.building, &of.Build.Done)
		}
		add(&s.applied, of.Applied)
		add(&s.parked, of.Parked)
		add(&s.sessions, of.SessionsHeld)
		if of.LagMS != nil {
			s.lag = max(s.lag, *of.LagMS)
		}
	}
	if v.Queue != nil {
		add(&s.active, v.Queue.Active)
		add(&s.dead, v.Queue.Dead())
	}
	if v.Run != nil {
		s.inserted = v.Run.Inserted
	}
	return s
}

// add adds a known number to a sum that is below 0 while it is unknown.
func add(sum, n *int64) {
	if n != nil {
		*sum = max(*sum, 0) + *n
	}
}

// series returns the values of the newest samples, oldest first.
func (h *history) series(value func(sample) int64) []float64 {
	n := min(h.count, kept)
	values := make([]float64, 0, n)
	for i := h.count - n; i < h.count; i++ {
		values = append(values, float64(value(h.samples[i%kept])))
	}
	return values
}

// rates returns how much a counter grew a second, at each of the newest samples. A counter that
// falls, as when a process is replaced, gives 0, and an unknown one -1.
func (h *history) rates(value func(sample) int64) []float64 {
	n := min(h.count, kept)
	values := make([]float64, 0, n)
	for i := h.count - n; i < h.count; i++ {
		before := max(i-recent, h.count-n)
		a, b := h.samples[before%kept], h.samples[i%kept]
		took := b.at.Sub(a.at).Seconds()
		if value(a) < 0 || value(b) < 0 {
			values = append(values, -1)
			continue
		}
		if took <= 0 || value(b) < value(a) {
			values = append(values, 0)
			continue
		}
		values = append(values, float64(value(b)-value(a))/took)
	}
	return values
}

// pace returns how fast a build or a snapshot goes over the last minute, and the time that is left
// if its total is known. Several builds at once, or several snapshots, have no pace of their own.
func (h *history) pace(p *Progress) string {
	value := func(s sample) int64 { return s.snapshot }
	if p.Unit == "events" {
		value = func(s sample) int64 { return s.building }
	}
	n := min(h.count, kept)
	if n == 0 {
		return "–"
	}
	last := h.samples[(h.count-1)%kept]
	first := last
	for i := h.count - 1; i >= h.count-n && i >= h.count-window; i-- {
		s := h.samples[i%kept]
		if value(s) < 0 || value(s) > value(first) {
			break // it began, or began again
		}
		first = s
	}
	took := last.at.Sub(first.at).Seconds()
	if value(last) != p.Done || took <= 0 {
		return "–"
	}
	rate := float64(value(last)-value(first)) / took
	text := short(rate) + " a second"
	if left := p.Total - p.Done; left > 0 && rate > 0 {
		text += ", about " + duration(time.Duration(float64(left)/rate*float64(time.Second))) + " to go"
	}
	return text
}
