package projector

import (
	"context"

	"github.com/sluice-cdc/sluice/shared/console"
)

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
