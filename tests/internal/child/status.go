package child

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	// pollEvery is how often a service is asked for its status; what must be exact is measured at
	// the broker.
	pollEvery = 50 * time.Millisecond
	// pollTimeout is how long a frozen process may delay a poll.
	pollTimeout = time.Second
	// fresh is the age up to which a status counts: an older one belongs to a frozen process, or to
	// an overloaded machine.
	fresh = 2 * time.Second
)

// Status is the answer of a service to GET /status: the fields of both services.
type Status struct {
	Instance string `json:"instance"`

	// The fields of a producer.
	Role            string `json:"role"` // leader or standby
	Epoch           int64  `json:"epoch"`
	InFlight        int64  `json:"in_flight"`
	ReadyToRead     bool   `json:"ready_to_read"`
	Error           string `json:"error"`
	Lanes           int64  `json:"lanes"`
	FenceMarginMs   int64  `json:"fence_margin_ms"`
	FenceAfterMs    int64  `json:"fence_after_ms"`
	Position        string `json:"position"`
	HeadroomSeconds *int64 `json:"oplog_headroom_seconds"`
	HeadroomNote    string `json:"oplog_headroom_note"`
	Snapshot        *struct {
		Reason    string    `json:"reason"`
		BeganAt   time.Time `json:"began_at"`
		Documents int64     `json:"documents"`
		Estimated int64     `json:"estimated"`
	} `json:"snapshot"`

	// The fields of a projector.
	SessionsHeld int64 `json:"sessions_held"`
	Parked       int64 `json:"parked"`
	DeadLettered int64 `json:"dead_lettered"`
	Duplicates   int64 `json:"duplicates"`
	Redelivered  int64 `json:"redelivered"`

	// LagMs is of either service.
	LagMs int64 `json:"lag_ms"`
}

// Leads reports whether the service leads and its change stream is open.
func (s Status) Leads() bool { return s.Role == "leader" && s.ReadyToRead }

// Status returns the latest answer of the process; ok is false without one that is fresh.
func (s *Slot) Status() (status Status, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status, !s.statusAt.IsZero() && time.Since(s.statusAt) < fresh
}

// LastStatus returns the latest answer of the process, whatever its age; zero if there was none.
func (s *Slot) LastStatus() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Leader returns the producer that leads and reads according to its own fresh status. If two claim
// to lead, the one with the later epoch does.
func Leader[S interface{ Status() (Status, bool) }](producers []S) (leader S, status Status, ok bool) {
	for _, p := range producers {
		if s, fresh := p.Status(); fresh && s.Leads() && s.Epoch > status.Epoch {
			leader, status, ok = p, s, true
		}
	}
	return leader, status, ok
}

// poll asks the process for its status until ctx or the process ends.
func (s *Slot) poll(ctx context.Context, p *process) {
	transport := &http.Transport{DialContext: s.Dial}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: pollTimeout}
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.ended:
			return
		case <-ticker.C:
		}
		addr := p.logs.health()
		if addr == "" {
			continue
		}
		asked := time.Now() // an answer is as old as its question
		status, err := ask(ctx, client, addr)
		if err != nil {
			continue // a process that does not answer has no fresh status
		}
		s.mu.Lock()
		if s.current == p {
			s.status, s.statusAt = status, asked
		}
		s.mu.Unlock()
	}
}

func ask(ctx context.Context, client *http.Client, addr string) (Status, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/status", http.NoBody)
	if err != nil {
		return Status{}, fmt.Errorf("ask for status: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return Status{}, fmt.Errorf("ask for status: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if err != nil {
		return Status{}, fmt.Errorf("read status: %w", err)
	}
	var status Status
	if err := json.Unmarshal(body, &status); err != nil {
		return Status{}, fmt.Errorf("decode status: %w", err)
	}
	return status, nil
}

func joinLines(lines []string) string { return "    " + strings.Join(lines, "\n    ") }
