package checkpoint

import (
	"encoding/json"
	"fmt"
	"strings"
)

// MappingFingerprint holds the settings that have decided which aggregate a change belongs to and
// which version it has there. The zero value means that an earlier release wrote the record without
// it.
type MappingFingerprint struct {
	AggregateIDPath string `json:"aggregateIdPath"`
	VersionPath     string `json:"versionPath"`
	// Pipeline is PIPELINE without white space between its tokens.
	Pipeline string `json:"pipeline,omitempty"`
	// Operations are the operations that become messages, separated by commas.
	Operations string `json:"operations"`
	// Updates and Deletes are where the aggregate of such a change comes from: image, or
	// documentKey; empty if none is published.
	Updates string `json:"aggregateOfUpdates,omitempty"`
	Deletes string `json:"aggregateOfDeletes,omitempty"`
	// Numbers is how the text of an id shows a number: [NumbersByValue], or empty in a stream that
	// began with a text for each type.
	Numbers string `json:"numbers,omitempty"`
	// Collection is DATABASE.COLLECTION, and Entity the topic or queue; empty if an earlier release
	// wrote the record.
	Collection string `json:"collection,omitempty"`
	Entity     string `json:"entity,omitempty"`
	// Cluster is the identity that the deployment stores for itself; empty if it could not be read.
	Cluster string `json:"cluster,omitempty"`
}

// NumbersByValue is the value of Numbers for a stream in which equal numbers have the same text.
const NumbersByValue = "byValue"

// Inherit returns the fingerprint of the same settings for a stream that has been published: what
// no setting decides, and what these settings do not know or publish, is taken from the published
// fingerprint.
func (r MappingFingerprint) Inherit(published MappingFingerprint) MappingFingerprint {
	r = r.fillFrom(published)
	r.Numbers = published.Numbers
	return r
}

// fillFrom returns the fingerprint with unknown or unpublished values taken from an earlier one.
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

// Diff lists the settings that differ and would change a session or a version. drain reports
// whether old messages must be consumed before new ones are published. OPERATIONS and the filters
// of PIPELINE are not compared: they apply from where a leader begins.
func (r MappingFingerprint) Diff(to MappingFingerprint) (what []string, drain bool) {
	if r == (MappingFingerprint{}) || to == (MappingFingerprint{}) {
		return nil, false
	}
	r, to = r.fillFrom(to), to.fillFrom(r) // a value that one of them does not know or publish has not changed
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
		{"PIPELINE (except $match)", withoutFilters(r.Pipeline), withoutFilters(to.Pipeline), true},
		{"ON_UNKNOWN_AGGREGATE (the aggregate of updates)", r.Updates, to.Updates, true},
		{"ON_UNKNOWN_AGGREGATE (the aggregate of deletes)", r.Deletes, to.Deletes, true},
		{"the text of numbers in ids", r.Numbers, to.Numbers, true},
	} {
		if setting.was != setting.is {
			what, drain = append(what, fmt.Sprintf("%s was %q and is now %q", setting.name, setting.was, setting.is)), drain || setting.drain
		}
	}
	return what, drain
}

// identityKind returns the kind of a cluster's identity: everything but its last word.
func identityKind(cluster string) string {
	return cluster[:max(strings.LastIndexByte(cluster, ' '), 0)]
}

// withoutFilters returns a pipeline without its $match stages: its effect on the events that pass.
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
