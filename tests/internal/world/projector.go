package world

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// Projector is a projector in this process, with connections of its own.
type Projector struct {
	Stop context.CancelFunc
	Done chan error // gets the result of Run; then it is closed
	Log  *Recorder
	// BusPlug and MongoPlug connect it to the servers.
	BusPlug, MongoPlug *Plug

	w    *World
	last *Counters // once it has ended
	err  error
}

// Counters are the numbers that a projector logs when it stops.
type Counters struct {
	Msg          string `json:"msg"`
	Applied      int    `json:"applied"`
	Duplicates   int    `json:"duplicates"`
	DeadLettered int    `json:"dead_lettered"`
	Redelivered  int    `json:"redelivered"`
}

// ProjectorConfig returns the default settings of a projector in tests: the projection timeline,
// from Subscription.
func (w *World) ProjectorConfig() projector.Config {
	return projector.Config{
		ServiceBus: azure.ServiceBus{ConnectionString: servicebus.ConnectionString(busHost)},
		Topic:      Topic, Subscription: Subscription, Connections: 2,
		MongoURI: w.MongoURI(), Database: ReadModel, Projection: "timeline",
		MaxSessions: 8, ReceiveBatch: 100,
		SessionIdle: 2 * time.Second, SessionMaxHold: 30 * time.Second,
		AcceptTimeout: time.Minute, ApplyTimeout: 10 * time.Second, SettleTimeout: 5 * time.Second,
		VersionGapWait: 30 * time.Second, UndecidedAfter: 10 * time.Minute, WatchProcesses: true,
		ShutdownTimeout: 20 * time.Second,
	}
}

// StartProjector runs a projector; change adjusts its settings.
func (w *World) StartProjector(change func(*projector.Config, *projector.Options)) *Projector {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	p := &Projector{
		Stop: cancel, Done: make(chan error, 1), Log: &Recorder{},
		BusPlug: &Plug{}, MongoPlug: &Plug{}, w: w,
	}
	config := w.ProjectorConfig()
	o := projector.Options{
		Logger:     slog.New(slog.NewJSONHandler(p.Log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Instance:   fmt.Sprintf("projector-%d", len(w.Projectors)), // a process of its own
		ServiceBus: BusOptions(p.BusPlug.Dialer(w.BusNet)),
		Mongo:      MongoOptions(p.MongoPlug.Dialer(w.MongoNet)),
	}
	if change != nil {
		change(&config, &o)
	}
	go func() {
		p.Done <- projector.Run(ctx, config, o)
		close(p.Done)
	}()
	w.Projectors = append(w.Projectors, p)
	return p
}

// End asks the projector to stop, waits for it, and returns its error and the numbers that it
// logged at the end.
func (p *Projector) End() (Counters, error) {
	if p.last == nil {
		p.Stop()
		p.err = <-p.Done
		if p.w.Failed() {
			p.w.Log(p.Log.Text())
		}
		p.last = p.lastWords()
	}
	return *p.last, p.err
}

// MustEnd is like End of a projector that ends without an error.
func (p *Projector) MustEnd() Counters {
	p.w.Helper()
	counters, err := p.End()
	require.NoError(p.w, err)
	return counters
}

// Kill cuts all connections of the projector at once, as if the process were killed, and then ends
// it.
func (p *Projector) Kill() {
	p.BusPlug.Pull()
	p.MongoPlug.Pull()
	_, _ = p.End()
}

func (p *Projector) lastWords() *Counters {
	lines := bytes.Split(bytes.TrimSpace([]byte(p.Log.Text())), []byte("\n"))
	var c Counters
	require.NoError(p.w, json.Unmarshal(lines[len(lines)-1], &c))
	require.Equal(p.w, "projector stopped", c.Msg)
	return &c
}
