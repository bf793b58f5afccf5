package flags

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-cdc/sluice/tests/emulator"
)

// The settings that --follow takes from the environment, named as the producer's.
const (
	EnvDatabase   = "MONGODB_DATABASE"
	EnvCollection = "MONGODB_COLLECTION"
)

// handedOn are the producer's settings about a collection and its documents, which --follow hands
// on to it.
var handedOn = []string{
	"AGGREGATE_ID_PATH", "OPERATIONS", "ON_UNKNOWN_AGGREGATE", "EVENT_TYPE_PATH", "VERSION_PATH", "FULL_DOCUMENT", "FULL_DOCUMENT_BEFORE_CHANGE",
	"ON_COLLECTION_REPLACED",
}

// Follow is the user's collection that a run follows. The zero value stands for no collection.
type Follow struct {
	URI, Database, Collection string
	Settings                  []string // KEY=VALUE, further ones for the producers
}

// Operations returns the kinds of change that the producer is to publish.
func (f Follow) Operations() []string {
	for _, setting := range f.Settings {
		if kinds, given := strings.CutPrefix(setting, "OPERATIONS="); given {
			return strings.Split(kinds, ",")
		}
	}
	return []string{"insert", "update", "replace", "delete"}
}

// Following reports whether the run inserts nothing, and only shows and checks what other programs
// write.
func (o Options) Following() bool { return o.Follow.URI != "" && !o.WriteLoad }

// readFollow reads the settings of --follow.
func (o *Options) readFollow(given map[string]bool, getenv func(string) string) (problems []string) {
	for _, setting := range []struct {
		name string
		to   *string
	}{{emulator.EnvMongo, &o.Follow.URI}, {EnvDatabase, &o.Follow.Database}, {EnvCollection, &o.Follow.Collection}} {
		if *setting.to = getenv(setting.name); *setting.to == "" {
			problems = append(problems, fmt.Sprintf("--follow needs the environment variable %s", setting.name))
		}
	}
	for _, name := range handedOn {
		if value := getenv(name); value != "" {
			o.Follow.Settings = append(o.Follow.Settings, name+"="+value)
		}
	}
	if len(problems) > 0 {
		problems = append(problems, "make run follows a collection of your own where MONGODB_URI is set: unset it to see the embedded MongoDB at work")
	}
	for _, flag := range []string{"external", "stack-only", "servicebus-config"} {
		if given[flag] {
			problems = append(problems, fmt.Sprintf("--%s and --follow each say which servers there are: leave one of them out", flag))
		}
	}
	if o.WriteLoad {
		return problems
	}
	for _, flag := range []string{"input", "events", "rate", "once", "expect", "seed"} {
		if given[flag] {
			problems = append(problems, fmt.Sprintf("--%s is about events that are inserted, and --follow inserts none: leave it out, or add --write-load", flag))
		}
	}
	if given["projection"] && o.Projection != Mirror {
		problems = append(problems, "--projection "+o.Projection+": --follow builds the mirror, which can be compared with any collection: "+
			"leave it out, or add --write-load")
	}
	o.Projection = Mirror
	if getenv("AGGREGATE_ID_PATH") == "" {
		// The order that matters to a mirror is that of each document, which every collection has.
		o.Follow.Settings = append(o.Follow.Settings, "AGGREGATE_ID_PATH=_id")
	}
	return slices.Clip(problems)
}
