package projector

import (
	"fmt"

	"github.com/sluice-cdc/sluice/projector/internal/sessions"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/settings"
)

// errLookedUp is a producer that does not give a projection what it needs.
func errLookedUp(name string, c *envelope.Change) error {
	database, _ := c.Body.Lookup("ns", "db").StringValueOK()
	collection, _ := c.Body.Lookup("ns", "coll").StringValueOK()
	return fmt.Errorf("PROJECTION: %s needs post-images, and the document of an update (message %s of stream %s) was looked up later. Run "+
		"db.getSiblingDB(%q).runCommand({collMod: %q, changeStreamPreAndPostImages: {enabled: true}}) in the source, and set the producer's "+
		"FULL_DOCUMENT=required; updates published before have no post-image: begin with a new subscription",
		name, c.MessageID, c.Stream, database, collection)
}

// refuseLookedUp ends the projector before the first effect of an update whose document was looked up, where the projection needs the
// update's own.
func (s *service) refuseLookedUp(b *batch) error {
	needs, ok := s.chosen.(projection.PostImages)
	if !ok || !needs.NeedsPostImages() {
		return nil
	}
	for i := range b.changes {
		if !(projection.Event{Change: b.changes[i]}).LookedUp() {
			continue
		}
		select {
		case s.refused <- settings.Problems{errLookedUp(s.chosen.Name(), &b.changes[i])}:
		default: // another session was faster
		}
		return sessions.ErrRelease
	}
	return nil
}
