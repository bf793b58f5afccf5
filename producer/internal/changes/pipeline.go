package changes

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// requiredFields are the fields of an event that no stage may change or remove.
var requiredFields = []string{"_id", "operationType", "documentKey", "clusterTime"}

// stageChecks holds the stages that a pipeline may have, with their checks.
var stageChecks = map[string]func(any) error{
	"$match":       checkMatch,
	"$project":     checkProject,
	"$addFields":   checkSet,
	"$set":         checkSet,
	"$unset":       checkUnset,
	"$replaceRoot": checkReplaceRoot,
	"$replaceWith": checkReplacement,
}

// ParsePipeline parses the stages of a change stream from an Extended JSON array. It accepts only
// stages that provably keep what this program needs of an event, and widens each $match to pass the
// events that end a collection. The error names every problem; an empty text is no pipeline.
func ParsePipeline(text string) (mongo.Pipeline, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var wrapped struct {
		Stages []bson.D `bson:"stages"`
	}
	var list []json.RawMessage
	err := json.Unmarshal([]byte(text), &list)
	if err == nil {
		err = bson.UnmarshalExtJSON([]byte(`{"stages":`+text+`}`), false, &wrapped)
	}
	if err != nil {
		return nil, fmt.Errorf("is not an Extended JSON array of stages, such as [{\"$match\": {…}}]: %w", err)
	}
	var problems []string
	for i, stage := range wrapped.Stages {
		if len(stage) != 1 {
			problems = append(problems, fmt.Sprintf("stage %d must have exactly one field, its name", i+1))
			continue
		}
		check := stageChecks[stage[0].Key]
		if check == nil {
			problems = append(problems, fmt.Sprintf("stage %d: %s is not one of $match, $project, $addFields, $set, $unset, $replaceRoot, "+
				"$replaceWith", i+1, stage[0].Key))
			continue
		}
		if err := check(stage[0].Value); err != nil {
			problems = append(problems, fmt.Sprintf("stage %d (%s) %v", i+1, stage[0].Key, err))
			continue
		}
		if stage[0].Key == "$match" {
			wrapped.Stages[i] = widenMatch(stage[0].Value)
		}
	}
	if len(problems) > 0 {
		return nil, errors.New(strings.Join(problems, "; "))
	}
	return wrapped.Stages, nil
}

// widenMatch returns a $match that also passes the events that end a collection. Without the
// invalidate event the stream could not be resumed after a drop: the driver keeps no token of a
// stream that ends without one.
func widenMatch(filter any) bson.D {
	return bson.D{{Key: "$match", Value: bson.D{{Key: "$or", Value: bson.A{
		filter,
		bson.D{{Key: "operationType", Value: bson.D{{Key: "$in", Value: bson.A{"drop", "rename", "dropDatabase", "invalidate"}}}}},
	}}}}}
}

var errNoDocument = errors.New("must be a document")

func checkMatch(spec any) error {
	if _, ok := spec.(bson.D); !ok {
		return errNoDocument
	}
	return nil
}

// checkProject requires that an inclusion includes every required field, and that an exclusion
// excludes none.
func checkProject(spec any) error {
	d, ok := spec.(bson.D)
	if !ok || len(d) == 0 {
		return errNoDocument
	}
	inclusion := slices.ContainsFunc(d, func(e bson.E) bool { return e.Key != "_id" && !isExcluded(e.Value) })
	for _, field := range requiredFields {
		i := slices.IndexFunc(d, func(e bson.E) bool { return e.Key == field })
		switch {
		case i >= 0 && isIncluded(field, d[i].Value):
			continue
		case i >= 0:
			return fmt.Errorf("must keep %s as it is", field)
		case inclusion && field != "_id":
			return fmt.Errorf("must include %s (add %q: 1)", field, field)
		}
		if e := slices.IndexFunc(d, func(e bson.E) bool { return root(e.Key) == field }); e >= 0 {
			return fmt.Errorf("must keep %s as it is, not %s alone", field, d[e].Key)
		}
	}
	return nil
}

func checkSet(spec any) error {
	d, ok := spec.(bson.D)
	if !ok {
		return errNoDocument
	}
	for _, e := range d {
		if slices.Contains(requiredFields, root(e.Key)) {
			return fmt.Errorf("must not set %s: %s is needed as it is", e.Key, root(e.Key))
		}
	}
	return nil
}

func checkUnset(spec any) error {
	paths, _ := spec.(bson.A)
	if name, ok := spec.(string); ok {
		paths = bson.A{name}
	}
	if len(paths) == 0 {
		return errors.New("must be a field's name or an array of them")
	}
	for _, p := range paths {
		path, ok := p.(string)
		if !ok {
			return errors.New("must be a field's name or an array of them")
		}
		if slices.Contains(requiredFields, root(path)) {
			return fmt.Errorf("must not drop %s: %s is needed as it is", path, root(path))
		}
	}
	return nil
}

func checkReplaceRoot(spec any) error {
	d, ok := spec.(bson.D)
	if !ok || len(d) != 1 || d[0].Key != "newRoot" {
		return errors.New("must be {newRoot: …}")
	}
	return checkReplacement(d[0].Value)
}

// checkReplacement requires that the new event is the old one with fields added, or names every
// required field unchanged.
func checkReplacement(spec any) error {
	d, ok := spec.(bson.D)
	if ok && len(d) == 1 && d[0].Key == "$mergeObjects" {
		list, _ := d[0].Value.(bson.A)
		if len(list) == 0 || list[0] != "$$ROOT" {
			return errors.New("$mergeObjects must be an array that begins with \"$$ROOT\", so that the event keeps its fields")
		}
		for _, item := range list[1:] {
			fields, ok := item.(bson.D)
			if !ok || isOperator(fields) {
				return errors.New("the documents that $mergeObjects adds to \"$$ROOT\" must have literal fields: otherwise it is unknown " +
					"whether they replace " + strings.Join(requiredFields, ", "))
			}
			if err := checkSet(fields); err != nil {
				return err
			}
		}
		return nil
	}
	if !ok || isOperator(d) {
		return errors.New("must be {$mergeObjects: [\"$$ROOT\", {…}]}, or a document that keeps " + strings.Join(requiredFields, ", ") +
			" (\"_id\": \"$_id\", …)")
	}
	for _, field := range requiredFields {
		if !slices.Contains(d, bson.E{Key: field, Value: "$" + field}) {
			return fmt.Errorf("must keep %s (add %q: %q)", field, field, "$"+field)
		}
	}
	return nil
}

func root(path string) string {
	first, _, _ := strings.Cut(path, ".")
	return first
}

func isOperator(d bson.D) bool { return len(d) > 0 && strings.HasPrefix(d[0].Key, "$") }

func isExcluded(v any) bool { return v == false || v == int32(0) || v == int64(0) || v == float64(0) }

// isIncluded reports whether a projection's value keeps the field unchanged.
func isIncluded(field string, v any) bool {
	switch v.(type) {
	case bool, int32, int64, float64:
		return !isExcluded(v)
	}
	return v == "$"+field
}

// UnstableFilter reports whether a filter may pass other changes the next time: it reads documents,
// which are looked up, or already deleted, when the event is read.
func (c Config) UnstableFilter() bool {
	stable := func(o string) bool { return o == "" || o == "off" || o == "default" || o == "required" }
	if stable(string(c.FullDocument)) && stable(string(c.FullDocumentBeforeChange)) {
		return false
	}
	filters := slices.ContainsFunc(c.Pipeline, func(stage bson.D) bool { return stage[0].Key == "$match" })
	return filters && readsDocuments(c.Pipeline)
}

func readsDocuments(v any) bool {
	document := func(s string) bool {
		return strings.Contains(s, "fullDocument") || strings.Contains(s, "$$ROOT") || strings.Contains(s, "$$CURRENT")
	}
	switch t := v.(type) {
	case string:
		return document(t)
	case mongo.Pipeline:
		return slices.ContainsFunc(t, func(d bson.D) bool { return readsDocuments(d) })
	case bson.D:
		return slices.ContainsFunc(t, func(e bson.E) bool { return document(e.Key) || readsDocuments(e.Value) })
	case bson.A:
		return slices.ContainsFunc(t, readsDocuments)
	}
	return false
}

// SettingsHash returns a hash of everything that decides which events the server delivers: the
// collection and the pipeline, and with a pipeline the documents that it may read.
func (c Config) SettingsHash(collection *mongo.Collection) (string, error) {
	spec := bson.D{{Key: "db", Value: collection.Database().Name()}, {Key: "collection", Value: collection.Name()}}
	if len(c.Pipeline) > 0 {
		spec = append(spec, bson.D{
			{Key: "pipeline", Value: c.Pipeline},
			{Key: "fullDocument", Value: string(c.FullDocument)},
			{Key: "fullDocumentBeforeChange", Value: string(c.FullDocumentBeforeChange)},
		}...)
	}
	raw, err := bson.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("hash reading settings: %w", err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(raw)), nil
}
