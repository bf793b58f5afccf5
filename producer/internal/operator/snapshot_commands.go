package operator

import (
	"context"
	"errors"
	"flag"

	"github.com/sluice-cdc/sluice/shared/commandline"
)

// snapshotCommands request something of the leader, which takes the request at its next heartbeat.
func snapshotCommands() []Command {
	return []Command{
		{
			Name: "snapshot start", Takes: "--readers-know [--ids A,B,…] [--rate N]",
			Summary: "publish the documents of the collection within the stream, or those of single aggregates",
			Flags: func(f *flag.FlagSet, r *Request) {
				f.BoolVar(&r.snapshot.ReadersKnow, "readers-know", false, "confirm that every subscriber has a version that knows rows")
				f.StringVar(&r.ids, "ids", "", "the `IDS` of aggregates, as messages have them, separated by commas or as a JSON array; without it all documents")
				f.IntVar(&r.snapshot.Rate, "rate", 0, "documents per second, `N`; without it SNAPSHOT_RATE")
			},
			Check: func(_ string, r *Request) (err error) {
				if r.snapshot.Rate < 0 {
					return errors.New("needs a --rate of at least 1")
				}
				if r.ids != "" {
					r.snapshot.Aggregates, err = splitIDs(r.ids)
				}
				return err
			},
			Do: func(ctx context.Context, s *Stream, r Request) error { return s.SnapshotStart(ctx, r.snapshot) },
		},
		{
			Name: "snapshot pause", Takes: "[--yes]", Summary: "read no more documents; the changes of those that are not published yet wait",
			Flags: func(f *flag.FlagSet, r *Request) {
				f.BoolVar(&r.yes, "yes", false, "confirm that changes may wait meanwhile")
			},
			Do: func(ctx context.Context, s *Stream, r Request) error { return s.SnapshotPause(ctx, r.yes) },
		},
		{
			Name: "snapshot resume", Summary: "continue a snapshot that is paused",
			Do: func(ctx context.Context, s *Stream, _ Request) error { return s.SnapshotResume(ctx) },
		},
		{
			Name: "snapshot continue", Takes: "--accept-repeats",
			Summary: "continue a snapshot that has stopped the stream, because documents without versions would be published a second time",
			Flags: func(f *flag.FlagSet, r *Request) {
				f.BoolVar(&r.repeats, "accept-repeats", false, "confirm that up to one chunk of documents is published a second time")
			},
			Do: func(ctx context.Context, s *Stream, r Request) error { return s.SnapshotContinue(ctx, r.repeats) },
		},
		{
			Name: "snapshot status", Summary: "how far the snapshot is, its rate and the time to go, and what became of the last request",
			Do: func(ctx context.Context, s *Stream, r Request) error {
				report, err := s.SnapshotStatus(ctx)
				if err != nil {
					return err
				}
				return commandline.Show(s.Out, r.JSON, report)
			},
		},
		{
			Name: "snapshot stop", Summary: "end a snapshot that was started with --ids, or withdraw a request that no leader has taken",
			Do: func(ctx context.Context, s *Stream, _ Request) error { return s.SnapshotStop(ctx) },
		},
	}
}
