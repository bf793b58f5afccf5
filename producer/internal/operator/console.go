package operator

import (
	"context"
	"flag"
	"strings"

	"github.com/sluice-cdc/sluice/shared/console"
)

func consoleCommand() Command {
	return Command{
		Name: "console", Takes: "[--listen ADDRESS] [--with URL]",
		Summary: "show the stream in a browser on this machine; it changes nothing",
		Flags: func(f *flag.FlagSet, r *Request) {
			f.StringVar(&r.console.Listen, "listen", "127.0.0.1:8091", "the `ADDRESS`, on this machine alone")
			f.StringVar(&r.console.With, "with", "", "the `URL` of projector console on this machine, to show both sides")
		},
		Check: func(_ string, r *Request) error { return r.console.Check() },
		Do: func(ctx context.Context, s *Stream, r Request) error {
			return console.Command(ctx, r.console, console.Home{Title: "stream " + s.Name, View: s.view}, s.Out)
		},
	}
}

// view returns the status as the console shows it.
func (s *Stream) view(ctx context.Context) (v console.View) {
	status, err := s.Status(ctx)
	if err != nil {
		v.Problems = append(v.Problems, err.Error())
	}
	if status.Stream == "" {
		return v
	}
	stream := console.Stream{
		Name: status.Stream, Epoch: status.Epoch, Published: &status.Published, Position: status.Position,
		HeartbeatAgeMS:  new(int64(status.HeartbeatAgeSeconds * 1000)),
		HeadroomSeconds: status.HeadroomSeconds, HeadroomNote: status.HeadroomNote,
	}
	if status.LagSeconds != nil {
		stream.LagMS = new(*status.LagSeconds * 1000)
	}
	if status.Leads {
		stream.Leader = status.Leader
	}
	switch {
	case status.Stopped:
		stream.State = "stopped: nothing is published past its last failure"
		stream.Failure = strings.TrimSpace(status.LastFailure.Error)
	case status.Leads && status.Begins:
		stream.State = "begins: its leader has no position yet"
	}
	if b := status.Snapshot; b != nil {
		stream.Snapshot = b.Progress()
	}
	v.Streams = []console.Stream{stream}
	return v
}

// Progress returns the snapshot as the console shows it.
func (s *SnapshotStatus) Progress() *console.Progress {
	return &console.Progress{State: s.Reason, Done: s.Documents, Total: s.Estimated, Unit: "documents", BeganAt: s.BeganAt}
}
