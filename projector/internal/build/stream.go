package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Stream is what the producer's checkpoint records of the stream that goes on behind the build.
type Stream struct {
	Name     string
	Position string // of the checkpoint
	// Snapshot reports whether a snapshot is being published within the stream.
	Snapshot bool
	// Collection, AggregatePath, VersionPath, Pipeline and Operations are what it publishes, in the
	// producer's words.
	Collection, AggregatePath, VersionPath, Pipeline, Operations string
}

// check returns why a read model cannot be built beside the stream from documents that show the
// effect of these operations alone; nil if it can.
func (s Stream) check(source Source, operations string) error {
	switch {
	case !envelope.Sortable(s.Position):
		return fmt.Errorf("the positions of stream %s are counted (%q), as on Azure DocumentDB, so no position stands for a time of the source: "+
			"a read model cannot be built beside it", s.Name, s.Position)
	case s.Snapshot:
		return fmt.Errorf("a snapshot is being published within stream %s: its rows have later positions than what is read now, and would count a second "+
			"time. Run the command again once the snapshot is complete (`producer status`)", s.Name)
	case s.Collection != "" && s.Collection != source.String():
		return fmt.Errorf("stream %s is of %s, and SOURCE_DATABASE and SOURCE_COLLECTION name %s", s.Name, s.Collection, source)
	case s.AggregatePath != source.AggregatePath:
		return fmt.Errorf("stream %s has AGGREGATE_ID_PATH=%s, and the projector %s: make them the same", s.Name, s.AggregatePath, source.AggregatePath)
	case s.VersionPath != source.VersionPath:
		return fmt.Errorf("stream %s has VERSION_PATH=%s, and the projector %s: make them the same", s.Name, s.VersionPath, source.VersionPath)
	case s.Pipeline != "" && s.Pipeline != "[]":
		return fmt.Errorf("stream %s has a PIPELINE, which changes or leaves out events: documents do not show what it published", s.Name)
	case s.Operations != operations && operations == string(envelope.Insert):
		return fmt.Errorf("stream %s publishes %s: a document shows its last state, and not the changes that led there. A read model is built "+
			"from an event store alone, whose producer has OPERATIONS=insert. To fill a read model with documents that change, start its projector, and then "+
			"`producer snapshot start --readers-know`", s.Name, s.Operations)
	case s.Operations != operations:
		return fmt.Errorf("stream %s publishes %s: a mirror has each document as its source has it only if all of OPERATIONS=%s are published", s.Name, s.Operations, operations)
	}
	return nil
}

// errUnread is a stream that could be read at the start of the build, and cannot be read now.
var errUnread = errors.New("the stream cannot be read again")

// follows checks that the stream still publishes what documents show, that the subscription is the
// one that has kept all events since the build began, and that its topic has space for more.
func (b *Builder) follows(ctx context.Context, s *State) error {
	if time.Since(b.asked) < askEvery {
		return nil
	}
	stream, err := b.Reread(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnread, err)
	}
	before := b.Stream
	if before.Position = stream.Position; stream != before {
		return fmt.Errorf("the producer's settings of stream %s changed during the build, or a snapshot began: %w", b.Stream.Name,
			cmp.Or(stream.check(b.Source, string(envelope.Insert)),
				errors.New("what it published before and what it publishes now is not the same. Build another version")))
	}
	created, err := b.Entity(ctx)
	if err != nil {
		return err
	}
	created = created.Truncate(time.Millisecond) // as MongoDB keeps it
	b.asked = time.Now()
	switch {
	case created.IsZero() || created.Equal(s.Subscribed):
		return nil
	case !s.Subscribed.IsZero():
		return fmt.Errorf("the subscription was created at %s, and this build began beside one of %s, which was deleted with the events that waited in it: "+
			"build another version", created.Format(time.RFC3339), s.Subscribed.Format(time.RFC3339))
	}
	return b.subscribed(ctx, s, created)
}
