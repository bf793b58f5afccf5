package checkpoint

import (
	"encoding/json"
	"fmt"
	"strings"
)

// MappingFingerprint is what decided so far which aggregate a change belongs to and which number it has there. The zero value says that an
// earlier version wrote the record, which did not say.
type MappingFingerprint struct {
	AggregateIDPath string `json:"aggregateIdPath"`
	VersionPath     string `json:"versionPath"`
	// Pipeline is PIPELINE without the spaces between its words.
	Pipeline string `json:"pipeline,omitempty"`
	// Operations are those that become messages, with commas between them.
	Operations string `json:"operations"`
	// Updates and Deletes are where the aggregate of such a change is found: image, or documentKey; empty where none is published.
	Updates string `json:"aggregateOfUpdates,omitempty"`
	Deletes string `json:"aggregateOfDeletes,omitempty"`
	// Numbers says how the text of an id shows a number: [NumbersByValue], or empty in a stream that began with a text of each type.
	Numbers string `json:"numbers,omitempty"`
	// Collection is DATABASE.COLLECTION, and Entity the topic or queue; empty if an earlier version wrote the record.
	Collection string `json:"collection,omitempty"`
	Entity     string `json:"entity,omitempty"`
	// Cluster is the identity that the deployment keeps for itself; empty if it could not be read.
	Cluster string `json:"cluster,omitempty"`
}

// NumbersByValue is the Reading.Numbers of a stream in which equal numbers have one text.
const NumbersByValue = "byValue"

// Inherit returns the reading of the same settings for a stream that was published by another one: what no setting says stays, and
// what these settings do not know or publish.
func (r MappingFingerprint) Inherit(published MappingFingerprint) MappingFingerprint {
	r = r.fillFrom(published)
	r.Numbers = published.Numbers
	return r
}

// fillFrom returns the reading with what it does not know or publish taken from the one before.
func (r MappingFingerprint) fillFrom(before MappingFingerprint) MappingFingerprint {
	for _, field := range []struct {
		is  *string
		was string
	}{
		{&r.Updates, before.Updates},
		{&r.Deletes, before.Deletes},
		{&r.Collection, before.Collection},
		{&r.Entity, before.Entity},
		{&r.Cluster, before.Cluster},
	} {
		if *field.is == "" {
			*field.is = field.was
		}
	}
	return r
}

// Diff names what other settings would put into other sessions, or number otherwise; drain says that messages published by the
// one must not wait beside those of the other. OPERATIONS and the filters of PIPELINE do neither: they hold from where a leader begins.
func (r MappingFingerprint) Diff(to MappingFingerprint) (what []string, drain bool) {
	if r == (MappingFingerprint{}) || to == (MappingFingerprint{}) {
		return nil, false
	}
	r, to = r.fillFrom(to), to.fillFrom(r) // what one of them does not know or publish has not changed
	if identityKind(r.Cluster) != identityKind(to.Cluster) {
		to.Cluster = r.Cluster // a replica set that has become a shard
	}
	for _, setting := range []struct {
		name, was, is string
		drain         bool
	}{
		{"MONGODB_COLLECTION (with its database)", r.Collection, to.Collection, true},
		{"MONGODB_URI (the cluster's own identity)", r.Cluster, to.Cluster, true},
		{"SERVICE_BUS_TOPIC or SERVICE_BUS_QUEUE", r.Entity, to.Entity, true},
		{"AGGREGATE_ID_PATH", r.AggregateIDPath, to.AggregateIDPath, true},
		{"VERSION_PATH", r.VersionPath, to.VersionPath, false},
		{"PIPELINE (but for $match)", withoutFilters(r.Pipeline), withoutFilters(to.Pipeline), true},
		{"ON_UNKNOWN_AGGREGATE (the aggregate of updates)", r.Updates, to.Updates, true},
		{"ON_UNKNOWN_AGGREGATE (the aggregate of deletes)", r.Deletes, to.Deletes, true},
		{"the text of numbers in ids", r.Numbers, to.Numbers, true},
	} {
		if setting.was != setting.is {
			what, drain = append(what, fmt.Sprintf("%s was %q and is %q now", setting.name, setting.was, setting.is)), drain || setting.drain
		}
	}
	return what, drain
}

// identityKind returns what has an identity: all but its last word.
func identityKind(cluster string) string {
	return cluster[:max(strings.LastIndexByte(cluster, ' '), 0)]
}

// withoutFilters is a pipeline without its filters: what it makes of the events that it lets through.
func withoutFilters(pipeline string) string {
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
