package run

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/report"
	"github.com/sluice-cdc/sluice/tests/internal/child"
)

// sampleEvery is how often the services' memory is read.
const sampleEvery = 250 * time.Millisecond

// memory is the most resident memory seen of each role; safe for concurrent use.
type memory struct {
	mu   sync.Mutex // guards most
	most report.RSS
}

func (m *memory) get() report.RSS {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.most
}

// sample reads the services' memory until ctx ends.
func (r *runner) sample(ctx context.Context) error {
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		r.memory.mu.Lock()
		for _, s := range r.producers {
			status, fresh := s.Status()
			switch {
			case fresh && status.Leads():
				raise(&r.memory.most.Leader, s)
			case fresh && status.Role == "standby":
				raise(&r.memory.most.Standby, s)
			}
		}
		for _, s := range r.projectors {
			raise(&r.memory.most.Projector, s)
		}
		r.memory.mu.Unlock()
	}
}

func raise(most *float64, s *child.Slot) {
	if pid, ok := s.PID(); ok {
		_, resident := child.Use(pid)
		*most = max(*most, resident)
	}
}

// show keeps the live view up to date until ctx ends.
func (r *runner) show(ctx context.Context) error {
	every := r.live.Every()
	if every == 0 {
		return nil
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	speed := speedometer{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if r.firstSent.Load() != 0 {
			v := r.viewed(ctx)
			r.live.Show(v, speed.of(v.Run.Applied))
		}
	}
}

// speedometer is the speed over the last two seconds or so.
type speedometer struct {
	points []point
}

type point struct {
	at time.Time
	n  int64
}

func (s *speedometer) of(n int64) float64 {
	now := time.Now()
	s.points = append(s.points, point{now, n})
	for len(s.points) > 2 && now.Sub(s.points[1].at) > 2*time.Second {
		s.points = s.points[1:]
	}
	first := s.points[0]
	if now.Equal(first.at) {
		return 0
	}
	return float64(n-first.n) / now.Sub(first.at).Seconds()
}
