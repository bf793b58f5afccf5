package projector

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-cdc/sluice/projector/internal/pipeline"
	"github.com/sluice-cdc/sluice/shared/console"
	"github.com/sluice-cdc/sluice/shared/health"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Status is what /status shows.
type Status struct {
	Instance     string `json:"instance"`
	Projection   string `json:"projection"`
	SessionsHeld int64  `json:"sessions_held"`
	Applied      int64  `json:"applied"`       // events whose effect this process committed
	Duplicates   int64  `json:"duplicates"`    // events it recognised as applied before
	DeadLettered int64  `json:"dead_lettered"` // messages it moved to the dead-letter queue
	Redelivered  int64  `json:"redelivered"`   // messages received with a delivery count above 1
	// LagMS is the time from the newest applied change in the source to its effect, by the two
	// machines' clocks; -1 before the first one.
	LagMS int64 `json:"lag_ms"`
	// Parked is the number of parked aggregates in the read model, by any replica or operator; -1
	// before it has been counted.
	Parked int64 `json:"parked"`
	// Program is why the projection's program cannot be used, or "ready"; absent without one.
	Program string `json:"program,omitempty"`
}

// status is what the projector reports about itself. It is safe for concurrent use.
type status struct {
	instance, projection           string
	stopping, mongoReady, busReady atomic.Bool
	unbuilt                        atomic.Bool // the read model's build is awaited
	metrics                        *pipeline.Metrics
	metricsHandler                 http.Handler
	registry                       prometheus.Registerer
	// programReady returns why the projection's program cannot be used; nil without one.
	programReady func() error
	// readable returns why not all messages can be read.
	readable func() error
}

func newStatus(instance, projection string) *status {
	registry, handler := telemetry.Registry()
	return &status{
		instance: instance, projection: projection,
		metrics: pipeline.NewMetrics(projection, registry), metricsHandler: handler, registry: registry,
	}
}

// Status returns the values for /status.
func (s *status) Status() Status {
	counts := s.metrics.Counts()
	program := ""
	if s.programReady != nil {
		program = "ready"
		if err := s.programReady(); err != nil {
			program = err.Error()
		}
	}
	return Status{
		Program:      program,
		Instance:     s.instance,
		Projection:   s.projection,
		SessionsHeld: counts.SessionsHeld,
		Applied:      counts.Applied,
		Duplicates:   counts.Duplicates,
		DeadLettered: counts.DeadLettered,
		Redelivered:  counts.Redelivered,
		LagMS:        counts.LagMS,
		Parked:       counts.Parked,
	}
}

func (s *status) probes() health.Probes {
	return health.Probes{
		Live:    func() error { return nil },
		Ready:   s.ready,
		Status:  func() any { return s.Status() },
		Metrics: s.metricsHandler,
	}
}

func (s *status) ready() error {
	switch {
	case s.stopping.Load():
		return errors.New("stopping")
	case !s.mongoReady.Load():
		return errors.New("not yet connected to MongoDB")
	case !s.busReady.Load():
		return errors.New("not yet connected to Service Bus")
	case s.unbuilt.Load():
		return errors.New("waiting for the build of the read model: run the command build")
	}
	for _, ready := range []func() error{s.readable, s.programReady} {
		if ready == nil {
			continue
		}
		if err := ready(); err != nil {
			return err
		}
	}
	return nil
}

// home returns what the console of this replica shows: the same as /status.
func (s *service) home() console.Home {
	return console.Home{
		Title: "projector " + s.instance, Base: "/ui", Public: true,
		View: func(context.Context) console.View {
			status := s.Status()
			p := console.Projection{
				Name: status.Projection, Database: s.cfg.Database, Replicas: []string{status.Instance},
				Applied: &status.Applied, SessionsHeld: &status.SessionsHeld, Duplicates: &status.Duplicates, Redelivered: &status.Redelivered,
			}
			if status.Parked >= 0 {
				p.Parked = &status.Parked
			}
			if status.LagMS >= 0 {
				p.LagMS = &status.LagMS
			}
			return console.View{Projections: []console.Projection{p}}
		},
	}
}
