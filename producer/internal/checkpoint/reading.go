package checkpoint

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Reading is what decided so far which aggregate a change belongs to and which number it has there. The zero value says that an
// earlier version wrote the record, which did not say.
type Reading struct {
	AggregateIDPath string `json:"aggregateIdPath"`
	VersionPath     string `json:"versionPath"`
	// Pipeline is PIPELINE without the spaces between its words.
	Pipeline string `json:"pipeline,omitempty"`
	// Operations are those that become messages, with commas between them.
	Operations string `json:"operations"`
	// Updates and Deletes are where the aggregate of such a change is found: image, or documentKey; empty where none is published.
	Updates string `json:"aggregateOfUpdates,omitempty"`
	Deletes string `json:"aggregateOfDeletes,omitempty"`
}

// Changed names what other settings would put into other sessions, or number otherwise; drain says that messages published by the
// one must not wait beside those of the other. OPERATIONS and the filters of PIPELINE do neither: they hold from where a leader begins.
func (r Reading) Changed(to Reading) (what []string, drain bool) {
	if r == (Reading{}) || to == (Reading{}) {
		return nil, false
	}
	if to.Updates == "" || r.Updates == "" {
		to.Updates = r.Updates // none was published, or none will be
	}
	if to.Deletes == "" || r.Deletes == "" {
		to.Deletes = r.Deletes
	}
	for _, setting := range []struct {
		name, was, is string
		drain         bool
	}{
		{"AGGREGATE_ID_PATH", r.AggregateIDPath, to.AggregateIDPath, true},
		{"VERSION_PATH", r.VersionPath, to.VersionPath, false},
		{"PIPELINE (but for $match)", shape(r.Pipeline), shape(to.Pipeline), true},
		{"ON_UNKNOWN_AGGREGATE (the aggregate of updates)", r.Updates, to.Updates, true},
		{"ON_UNKNOWN_AGGREGATE (the aggregate of deletes)", r.Deletes, to.Deletes, true},
	} {
		if setting.was != setting.is {
			what, drain = append(what, fmt.Sprintf("%s was %q and is %q now", setting.name, setting.was, setting.is)), drain || setting.drain
		}
	}
	return what, drain
}

// shape is a pipeline without its filters: what it makes of the events that it lets through.
func shape(pipeline string) string {
	var stages []map[string]json.RawMessage
	if json.Unmarshal([]byte(pipeline), &stages) != nil {
		return pipeline
	}
	var kept []string
	for _, stage := range stages {
		for name, spec := range stage {
			if name != "$match" {
				kept = append(kept, name+string(spec))
			}
		}
	}
	return strings.Join(kept, ",")
}
