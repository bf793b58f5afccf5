package mongo

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
)

// Versions are the versions of MongoDB that the server can be like, each with its last digits.
var Versions = map[string][3]int32{"4.4": {4, 4, 29}, "5.0": {5, 0, 31}, "6.0": {6, 0, 27}, "7.0": {7, 0, 16}, "8.0": {8, 0, 4}}

// ParseVersion reads the name of one of [Versions].
func ParseVersion(name string) ([3]int32, error) {
	v, ok := Versions[name]
	if !ok {
		return v, fmt.Errorf("%q is not one of %s", name, strings.Join(slices.Sorted(maps.Keys(Versions)), ", "))
	}
	return v, nil
}

// likeVersion fills in what the version decides.
func (o *Options) likeVersion() {
	if o.Version == ([3]int32{}) {
		o.Version = Versions["8.0"]
	}
	o.NoHello = o.NoHello || o.before(4, 4, 2)
	o.NoSplit = o.NoSplit || o.before(6, 0, 9)
	o.AcceptLostTokens = o.AcceptLostTokens || o.before(5, 0, 0)
}

// tokenVersion returns the version of a stream's resume tokens: the one that was set, else the one
// that the server's version writes. split means that the stream has the stage
// $changeStreamSplitLargeEvent.
func (s *Server) tokenVersion(split bool) int {
	switch set := int(s.tokens.Load()); {
	case set != 0:
		return set
	case s.opts.before(6, 0, 9), s.opts.before(7, 0, 0) && !split:
		return 1
	}
	return 2
}

// newestToken returns the newest version of resume tokens that the server takes to resume from. One
// that was set to write version 2 has been upgraded to a version that does.
func (s *Server) newestToken() int {
	if s.opts.before(6, 0, 0) && s.tokens.Load() != 2 {
		return 1
	}
	return 2
}

// before reports whether the server acts as one older than a version.
func (o *Options) before(version ...int32) bool { return slices.Compare(o.Version[:], version) < 0 }

// wire returns the newest version of the wire protocol that the server speaks.
func (o *Options) wire() int32 {
	for _, v := range []struct{ major, minor, wire int32 }{{8, 0, 25}, {7, 0, 21}, {6, 0, 17}, {5, 0, 13}, {4, 9, 12}} {
		if !o.before(v.major, v.minor, 0) {
			return v.wire
		}
	}
	return 9
}

// since is when stages and expressions came that older servers refuse.
var since = map[string][2]int32{
	"$dateAdd": {5, 0}, "$dateSubtract": {5, 0}, "$dateDiff": {5, 0}, "$dateTrunc": {5, 0}, "$getField": {5, 0}, "$setField": {5, 0}, "$unsetField": {5, 0},
	"$documents": {6, 0}, "$sortArray": {6, 0}, "$firstN": {6, 0}, "$lastN": {6, 0}, "$minN": {6, 0}, "$maxN": {6, 0}, "$tsSecond": {6, 0}, "$tsIncrement": {6, 0},
	"$bitAnd": {7, 0}, "$bitOr": {7, 0}, "$bitXor": {7, 0}, "$bitNot": {7, 0},
}

// fieldsSince is when fields of commands came, by command and field, and the code of an older
// server's refusal.
var fieldsSince = map[string]struct {
	version [2]int32
	code    int32
}{
	"find.let": {[2]int32{5, 0}, mongoerr.FailedToParse}, "update.let": {[2]int32{5, 0}, mongoerr.UnknownField}, "delete.let": {[2]int32{5, 0}, mongoerr.UnknownField},
	"findAndModify.let": {[2]int32{5, 0}, mongoerr.UnknownField}, "aggregate.let": {[2]int32{5, 0}, mongoerr.FailedToParse},
	"create.changeStreamPreAndPostImages": {[2]int32{6, 0}, mongoerr.UnknownField}, "collMod.changeStreamPreAndPostImages": {[2]int32{6, 0}, mongoerr.UnknownField},
	"update.updates.sort": {[2]int32{8, 0}, mongoerr.UnknownField}, "$changeStream.showExpandedEvents": {[2]int32{6, 0}, mongoerr.UnknownField},
}

// known refuses a field that the version does not know.
func (r *request) known(path string) error {
	came, listed := fieldsSince[path]
	if !listed || !r.srv.opts.before(came.version[0], came.version[1], 0) {
		return nil
	}
	return mongoerr.New(came.code, "BSON field '%s' is an unknown field.", path)
}

// checkVersion refuses what the command contains and the version does not know.
func (r *request) checkVersion() error {
	if !r.srv.opts.before(8, 0, 0) {
		return nil
	}
	if r.name == "bulkWrite" {
		return mongoerr.New(mongoerr.CommandNotFound, "no such command: '%s'", r.name)
	}
	for _, e := range r.body[1:] {
		if err := r.known(r.name + "." + e.Key); err != nil {
			return err
		}
	}
	if r.name == "insert" {
		return nil
	}
	return r.younger(r.body, false)
}

// younger finds operators of later versions, wherever they stand. In a field of a projection they
// have a code of their own.
func (r *request) younger(v any, projected bool) error {
	switch t := v.(type) {
	case bson.A:
		for _, item := range t {
			if err := r.younger(item, false); err != nil {
				return err
			}
		}
	case bson.D:
		for _, e := range t {
			if came, ok := since[e.Key]; ok && r.srv.opts.before(came[0], came[1], 0) {
				if e.Key == "$documents" {
					return mongoerr.New(mongoerr.UnknownStage, "Unrecognized pipeline stage name: '%s'", e.Key)
				}
				if projected {
					return mongoerr.New(31325, "Unknown expression %s", e.Key)
				}
				return mongoerr.New(168, "Unrecognized expression '%s'", e.Key)
			}
			if e.Key == "$literal" {
				continue
			}
			if err := r.younger(e.Value, e.Key == "$project" || e.Key == "projection" || (projected && !strings.HasPrefix(e.Key, "$"))); err != nil {
				return err
			}
		}
	}
	return nil
}
