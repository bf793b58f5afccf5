package run

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// With --projection-url, the projection is a program of the user's. Its events are seen to be
// applied in the guards, and the verdict is that of projector verify, because only the program
// knows what is right.

// programPatience bounds the question to the program.
const programPatience = 5 * time.Second

// guardsOf returns the collection with the guards of a program's projection.
func (r *runner) guardsOf(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, programPatience)
	defer cancel()
	refused := func(err error) (string, error) {
		return "", fmt.Errorf("ask the projection's program for its declaration, which must run before this command: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.options.ProjectionURL+"/projection", http.NoBody)
	if err != nil {
		return refused(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return refused(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return refused(err)
	}
	var declared struct {
		OneDocument bool
		Collections []struct{ Name string }
	}
	if err := json.Unmarshal(text, &declared); err != nil {
		return refused(fmt.Errorf("GET %s/projection answers %s: %w", r.options.ProjectionURL, response.Status, err))
	}
	if declared.OneDocument && len(declared.Collections) > 0 {
		return declared.Collections[0].Name, nil
	}
	return r.options.Projection + "_positions", nil
}

// compareProgram has projector verify recompute every document with the program.
func (r *runner) compareProgram(ctx context.Context) (c history.Comparison, checked string) {
	checked = "every document, recomputed from the source by projector verify"
	counts := r.rec.Counts()
	c.Lost = counts.Committed - counts.Visible
	var found struct{ Documents int }
	err := r.ask(ctx, &found, "verify", "--json")
	c.Aggregates, c.Right = found.Documents, found.Documents
	if err != nil {
		c.Mismatches, c.Differences = 1, []string{err.Error()}
	}
	return c, checked
}

// guardMoved returns the aggregate whose guard a change of a document has moved, and the version of
// the last event that is applied.
func guardMoved(change bson.Raw, at time.Time) (o history.Observation, ok bool) {
	id, ok := change.Lookup("documentKey", "_id").StringValueOK()
	if !ok {
		return o, false
	}
	for _, path := range [][]string{
		{"fullDocument", "version"},
		{"fullDocument", "_sluice", "version"},
		{"updateDescription", "updatedFields", "version"},
		{"updateDescription", "updatedFields", "_sluice.version"},
		{"updateDescription", "updatedFields", "_sluice", "version"},
	} {
		if version, ok := change.Lookup(path...).AsInt64OK(); ok {
			return history.Observation{Aggregate: id, Events: version, At: at}, true
		}
	}
	return o, false
}
