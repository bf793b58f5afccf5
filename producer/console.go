package producer

import (
	"context"

	"github.com/sluice-cdc/sluice/shared/console"
)

// home returns what the console of this replica shows: the same as /status.
func (p *process) home() console.Home {
	return console.Home{
		Title: "producer " + p.instance, Base: "/ui", Public: true,
		View: func(context.Context) (v console.View) {
			for _, s := range p.streams {
				v.Streams = append(v.Streams, viewOf(s.status()))
			}
			return v
		},
	}
}

// viewOf returns the status of one stream as the console shows it.
func viewOf(s Status) console.Stream {
	v := console.Stream{
		Name: s.Stream, Leader: s.Leader, Epoch: s.Epoch, Published: &s.Published, Position: s.Position,
		HeadroomSeconds: s.OplogHeadroomSeconds, HeadroomNote: s.OplogHeadroomNote, Failure: s.Error,
		Replicas: []console.Replica{{Name: s.Instance, Role: s.Role, Error: s.Error}},
	}
	if s.LagMS >= 0 {
		v.LagMS = &s.LagMS
	}
	if s.CheckpointAgeMS >= 0 {
		v.HeartbeatAgeMS = &s.CheckpointAgeMS
	}
	if b := s.Snapshot; b != nil {
		v.Snapshot = b.Progress()
	}
	if s.Role == "leader" {
		v.InFlight, v.Lanes, v.FenceMarginMS, v.FenceAfterMS = &s.InFlight, &s.Lanes, &s.FenceMarginMS, &s.FenceAfterMS
	}
	return v
}
