package projector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/health"
)

const (
	// defaultWait is how long /applied waits for an effect by default, and maxWait at most.
	defaultWait = 5 * time.Second
	maxWait     = time.Minute
)

// applied is what /applied answers.
type applied struct {
	Projection string `json:"projection"`
	Aggregate  string `json:"aggregate"`
	// Version and Position are those of the last event applied.
	Version  int64  `json:"version"`
	Position string `json:"position"`
	// OperationTime is a time at which the effect was visible; empty if it was not.
	OperationTime *bson.Timestamp `json:"operation_time,omitempty"`
	// Parked is why no effect comes; Error is why the answer is not the effect.
	Parked string `json:"parked,omitempty"`
	Error  string `json:"error,omitempty"`
}

// httpProbes returns the answers over HTTP.
func (s *service) httpProbes() health.Probes {
	probes := s.probes()
	probes.More = map[string]http.HandlerFunc{"GET /applied": s.serveApplied}
	if s.ui != nil {
		maps.Copy(probes.More, s.ui.Patterns())
	}
	return probes
}

// serveApplied answers GET /applied?aggregate=A&version=V&wait=5s (or position=P, and stream=S if
// there are several) once the read model holds the effect: 200; 504 with how far the aggregate is
// applied if it does not within the wait; 409 if the aggregate is parked; 400 for a wrong query;
// 503 while the database cannot be asked.
func (s *service) serveApplied(w http.ResponseWriter, r *http.Request) {
	s.waits.Add(1)
	defer s.waits.Done()
	answer := applied{Projection: s.chosen.Name()}
	awaited, wait, err := parseApplied(r.URL.Query())
	answer.Aggregate = awaited.Aggregate
	status := http.StatusBadRequest
	if err == nil {
		ctx, cancel := context.WithTimeoutCause(r.Context(), wait, fmt.Errorf("not within %s", wait))
		defer cancel()
		base := projection.Base(s.chosen)
		awaited.Projection = fmt.Sprintf("%s:%d", base.Name(), projection.VersionOf(s.chosen))
		if one, ok := base.(projection.OneDocument); ok {
			awaited.Collection = one.Collection()
		}
		var effect projection.Effect
		effect, err = projection.Wait(ctx, s.readModel(), awaited)
		parked, isParked := errors.AsType[*projection.ParkedError](err)
		_, isNotYet := errors.AsType[*projection.NotYetError](err)
		switch {
		case err == nil:
			status, answer.OperationTime = http.StatusOK, &effect.OperationTime
		case isParked:
			status, answer.Parked = http.StatusConflict, parked.Reason
		case isNotYet:
			status = http.StatusGatewayTimeout
		default:
			status = http.StatusServiceUnavailable
		}
		answer.Version, answer.Position = effect.Version, effect.Position
	}
	if err != nil {
		answer.Error = err.Error()
	}
	health.WriteJSON(w, status, answer)
}

// parseApplied reads a query of /applied.
func parseApplied(query url.Values) (a projection.Awaited, wait time.Duration, err error) {
	a.Aggregate, a.Position, a.Stream = query.Get("aggregate"), query.Get("position"), query.Get("stream")
	if text := query.Get("version"); text != "" {
		if a.Version, err = strconv.ParseInt(text, 10, 64); err != nil || a.Version < 1 {
			return a, 0, fmt.Errorf("version=%s: it is the version of an insert, a whole number from 1 on", text)
		}
	}
	if a.Aggregate == "" || a.Version == 0 && a.Position == "" {
		return a, 0, errors.New("needs aggregate and version, such as /applied?aggregate=order-1&version=7&wait=5s; or aggregate and position")
	}
	wait = defaultWait
	if text := query.Get("wait"); text != "" {
		if wait, err = time.ParseDuration(text); err != nil || wait <= 0 || wait > maxWait {
			return a, 0, fmt.Errorf("wait=%s: it is how long to wait, such as 5s, at most %s", text, maxWait)
		}
	}
	return a, wait, nil
}
