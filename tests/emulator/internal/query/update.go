package query

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// Update is a compiled update: a replacement, a list of operators, or a pipeline.
type Update struct {
	replacement bson.D
	pipeline    []Stage
	mods        []modifier
	positions   *positions // nil: no positional operators
	env         *Env
}

type modifier struct {
	op    string
	path  string
	parts []string
	arg   any
}

// CompileUpdate reads the `u` of an update command.
func CompileUpdate(u any, env *Env) (*Update, error) {
	switch t := u.(type) {
	case bson.A:
		return compilePipelineUpdate(t, env)
	case bson.D:
		if len(t) == 0 || !strings.HasPrefix(t[0].Key, "$") {
			for _, e := range t {
				if strings.HasPrefix(e.Key, "$") {
					return nil, mongoerr.New(mongoerr.DollarPrefixedFieldName, "The dollar ($) prefixed field '%s' is not allowed in the context of an update's replacement document. Consider using an aggregation pipeline with $replaceWith.", e.Key)
				}
			}
			if name, found := DollarName(t); found && env.before(5, 0) {
				return nil, mongoerr.New(mongoerr.DollarPrefixedFieldName, "The dollar ($) prefixed field '%s' is not valid for storage.", name)
			}
			return &Update{replacement: append(bson.D{}, t...), env: env}, nil
		}
		return compileModifiers(t, env)
	}
	return nil, mongoerr.New(mongoerr.FailedToParse, "Update argument must be either an object or an array")
}

// DollarName returns the first name within v that begins with $ and does not belong to a DBRef,
// which has $ref, $id and perhaps $db in this order.
func DollarName(v any) (name string, found bool) {
	switch t := v.(type) {
	case bson.A:
		for _, item := range t {
			if name, found = DollarName(item); found {
				return name, found
			}
		}
	case bson.D:
		before := ""
		for i, e := range t {
			reference := (e.Key == "$ref" && i == 0 && i+1 < len(t) && t[i+1].Key == "$id") || (e.Key == "$id" && before == "$ref") || (e.Key == "$db" && before == "$id")
			if strings.HasPrefix(e.Key, "$") && !reference {
				return e.Key, true
			}
			if name, found = DollarName(e.Value); found {
				return name, found
			}
			before = e.Key
		}
	}
	return "", false
}

// IsReplacement reports whether the update is a whole document.
func (u *Update) IsReplacement() bool { return u.replacement != nil }

func compilePipelineUpdate(a bson.A, env *Env) (*Update, error) {
	for _, item := range a {
		d, _ := item.(bson.D)
		if len(d) != 1 {
			return nil, mongoerr.New(40323, "A pipeline stage specification object must contain exactly one field.")
		}
		if !isStage(d[0].Key) {
			return nil, mongoerr.New(mongoerr.UnknownStage, "Unrecognized pipeline stage name: '%s'", d[0].Key)
		}
		switch d[0].Key {
		case "$set", "$addFields", "$unset", "$project", "$replaceWith", "$replaceRoot":
		default:
			return nil, mongoerr.New(mongoerr.InvalidOptions, "%s is not allowed to be used within an update", d[0].Key)
		}
	}
	p, err := CompilePipeline(a, env)
	return &Update{pipeline: p, env: env}, err
}

func compileModifiers(d bson.D, env *Env) (*Update, error) {
	u := &Update{env: env}
	for _, e := range d {
		if _, ok := modifiers[e.Key]; !ok {
			return nil, mongoerr.New(mongoerr.FailedToParse, "Unknown modifier: %s. Expected a valid update modifier or pipeline-style update specified as an array", e.Key)
		}
		fields, ok := e.Value.(bson.D)
		if !ok {
			return nil, mongoerr.New(mongoerr.FailedToParse, "Modifiers operate on fields but we found type %s instead. For example: {$mod: {<field>: ...}} not {%s: %v}", TypeName(e.Value), e.Key, e.Value)
		}
		for _, f := range fields {
			m := modifier{op: e.Key, path: f.Key, parts: value.Split(f.Key), arg: f.Value}
			if err := m.check(); err != nil {
				return nil, err
			}
			if name, found := DollarName(m.arg); found && env.before(5, 0) && (m.op == "$set" || m.op == "$setOnInsert") {
				return nil, mongoerr.New(mongoerr.DollarPrefixedFieldName, "The dollar ($) prefixed field '%s' in '%s' is not valid for storage.", name, m.path)
			}
			u.mods = append(u.mods, m)
		}
	}
	// A server applies modifiers in the order of the paths that they write.
	sort.SliceStable(u.mods, func(i, j int) bool { return u.env.comparePaths(u.mods[i].target(), u.mods[j].target()) < 0 })
	return u, u.conflicts()
}

// target returns the path that the modifier writes.
func (m *modifier) target() []string {
	if to, ok := m.arg.(string); ok && m.op == "$rename" {
		return value.Split(to)
	}
	return m.parts
}

// comparePaths orders paths by their names, of which those that are numbers compare as such since
// 5.0. [MongoDB src/mongo/db/update/update_internal_node.h]
func (e *Env) comparePaths(a, b []string) int {
	if e.before(5, 0) {
		return slices.Compare(a, b)
	}
	return slices.CompareFunc(a, b, compareNames)
}

func compareNames(a, b string) int {
	if isDigits(a) && isDigits(b) {
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	}
	return strings.Compare(a, b)
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

func (m *modifier) check() error {
	for i, p := range m.parts {
		if p == "" {
			return mongoerr.New(56, "The update path '%s' contains an empty field name, which is not allowed.", m.path)
		}
		if positional(p) && i > 0 && m.op != "$rename" {
			continue
		}
		if strings.HasPrefix(p, "$") && i == 0 {
			return mongoerr.New(mongoerr.DollarPrefixedFieldName, "The dollar ($) prefixed field '%s' in '%s' is not valid for storage.", p, m.path)
		}
	}
	return m.checkArg()
}

// checkArg refuses an argument that is wrong for every document, before a document is read.
func (m *modifier) checkArg() error {
	switch m.op {
	case "$rename":
		to, ok := m.arg.(string)
		if !ok || to == m.path {
			return mongoerr.New(mongoerr.BadValue, "The 'to' field for $rename must be a string that differs from the source: %s", m.path)
		}
	case "$inc", "$mul":
		if value.Class(m.arg) != 10 {
			return mongoerr.New(mongoerr.TypeMismatch, "Cannot %s with non-numeric argument: {%s: %v}", map[string]string{"$inc": "increment", "$mul": "multiply"}[m.op], m.path, m.arg)
		}
	case "$pop":
		if n, ok := value.AsInt(m.arg); !ok || (n != 1 && n != -1) {
			return mongoerr.New(mongoerr.FailedToParse, "$pop expects 1 or -1, found: %v", m.arg)
		}
	case "$pullAll":
		if _, ok := m.arg.(bson.A); !ok {
			return mongoerr.New(mongoerr.BadValue, "$pullAll requires an array argument but was given a %s", TypeName(m.arg))
		}
	case "$push":
		return checkPush(m.arg)
	case "$currentDate":
		_, err := dateKind(m.arg)
		return err
	case "$bit":
		return checkBitwise(m)
	}
	return nil
}

func (u *Update) conflicts() error {
	var paths []string
	for _, m := range u.mods {
		paths = append(paths, m.path)
		if m.op == "$rename" {
			paths = append(paths, m.arg.(string))
		}
	}
	for i, a := range paths {
		for _, b := range paths[i+1:] {
			if a == b || strings.HasPrefix(b, a+".") || strings.HasPrefix(a, b+".") {
				return mongoerr.New(mongoerr.ConflictingUpdateOperators, "Updating the path '%s' would create a conflict at '%s'", b, a)
			}
		}
	}
	return nil
}

// Apply gives the new document and what changed; old is not touched. inserting
// switches $setOnInsert on.
func (u *Update) Apply(old bson.D, inserting bool) (bson.D, Change, error) {
	var now bson.D
	var c Change
	var err error
	switch {
	case u.replacement != nil:
		now, c = value.CloneDoc(u.replacement), Change{Replace: true}
		FillTimestamps(now, u.env)
	case u.pipeline != nil:
		now, err = u.runPipeline(old)
	default:
		e := &editor{doc: value.CloneDoc(old), inserting: inserting, env: u.env}
		for _, m := range u.mods {
			if err := u.modify(e, m, inserting); err != nil {
				return nil, Change{}, err
			}
		}
		now, c = e.doc, e.change(old)
	}
	if err != nil {
		return nil, Change{}, err
	}
	if now, err = keepID(old, now); err != nil {
		return nil, Change{}, err
	}
	switch {
	case u.pipeline != nil && u.env.before(5, 0):
		c = Change{Replace: !identical(old, now)}
	case u.pipeline != nil:
		c = diff(old, now)
	case u.replacement != nil && !u.env.before(5, 0) && identical(old, u.replacement): // with its _id: without, the same content is a replacement
		c = Change{}
	}
	return now, c, nil
}

// modify applies one modifier, to each of the elements that its path stands for.
func (u *Update) modify(e *editor, m modifier, inserting bool) error {
	concrete := []modifier{m}
	if u.positions != nil {
		var err error
		if concrete, err = u.positions.expand(e.doc, m, inserting); err != nil {
			return err
		}
	}
	before := len(e.touched)
	for _, m := range concrete {
		if err := modifiers[m.op](e, m); err != nil {
			return err
		}
	}
	if at := slices.IndexFunc(m.parts, func(p string) bool { _, several := elementName(p); return several }); at > 0 && len(e.touched)-before > 1 {
		e.whole(strings.Join(m.parts[:at], "."))
	}
	return nil
}

func (u *Update) runPipeline(old bson.D) (bson.D, error) {
	docs := []bson.D{value.CloneDoc(old)}
	docs, err := RunPipeline(u.pipeline, docs)
	if err != nil {
		return nil, err
	}
	return docs[0], nil
}

// keepID puts _id first, restores it when the update left it out, and refuses to change it.
func keepID(old, now bson.D) (bson.D, error) {
	was, had := value.Get(old, "_id")
	is, has := value.Get(now, "_id")
	switch {
	case !had && !has:
		return now, nil
	case had && has && !identical(was, is):
		return nil, mongoerr.New(mongoerr.ImmutableField, "Performing an update on the path '_id' would modify the immutable field '_id'")
	case !has:
		is = was
	}
	if len(now) > 0 && now[0].Key == "_id" {
		return now, nil
	}
	return append(bson.D{{Key: "_id", Value: is}}, value.Remove(now, "_id")...), nil
}

// UpsertSeed returns the document an upsert starts from: what the filter demands by equality.
func UpsertSeed(filter bson.D, replacement bool) (bson.D, error) {
	e := &editor{doc: bson.D{}}
	var seen []string
	for _, eq := range seeds(filter) {
		if replacement && strings.HasPrefix(eq.Path, "_id.") {
			return nil, mongoerr.New(111, "field at '_id' must be exactly specified, field at sub-path '%s' found", eq.Path)
		}
		if replacement && eq.Path != "_id" {
			continue
		}
		if len(eq.Values) != 1 || slices.ContainsFunc(seen, func(s string) bool {
			return s == eq.Path || strings.HasPrefix(s, eq.Path+".") || strings.HasPrefix(eq.Path, s+".")
		}) {
			return nil, mongoerr.New(54, "cannot infer query fields to set, path '%s' is matched twice", eq.Path)
		}
		seen = append(seen, eq.Path)
		if err := e.set(value.Split(eq.Path), eq.Values[0]); err != nil {
			return nil, err
		}
	}
	return e.doc, nil
}

// seeds returns the equalities that an upsert copies: those of every match, an $or of one branch,
// and $all.
func seeds(filter bson.D) (out []Equality) {
	for _, e := range filter {
		list, _ := e.Value.(bson.A)
		switch {
		case e.Key == "$and" || (e.Key == "$or" && len(list) == 1):
			for _, item := range list {
				if d, ok := item.(bson.D); ok {
					out = append(out, seeds(d)...)
				}
			}
		case strings.HasPrefix(e.Key, "$"):
		case !isOperators(e.Value):
			if _, regex := e.Value.(bson.Regex); !regex {
				out = append(out, Equality{e.Key, []any{e.Value}})
			}
		default:
			for _, op := range e.Value.(bson.D) {
				all, _ := op.Value.(bson.A)
				switch {
				case op.Key == "$eq":
					out = append(out, Equality{e.Key, []any{op.Value}})
				case op.Key == "$all" && len(all) > 0 && !isOperators(all[0]):
					out = append(out, Equality{e.Key, all})
				case op.Key == "$in" && len(all) == 1 && !isRegex(all[0]):
					out = append(out, Equality{e.Key, all})
				}
			}
		}
	}
	return out
}

func isRegex(v any) bool { _, ok := v.(bson.Regex); return ok }

// Equality is a condition a filter puts on every match: the path holds one of Values.
type Equality struct {
	Path   string
	Values []any
}

// Equalities lists the equality conditions that every match of the filter fulfils.
func Equalities(filter bson.D) []Equality {
	var out []Equality
	for _, e := range filter {
		if e.Key == "$and" {
			list, _ := e.Value.(bson.A)
			for _, item := range list {
				if d, ok := item.(bson.D); ok {
					out = append(out, Equalities(d)...)
				}
			}
			continue
		}
		if strings.HasPrefix(e.Key, "$") {
			continue
		}
		if !isOperators(e.Value) {
			if _, regex := e.Value.(bson.Regex); !regex {
				out = append(out, Equality{e.Key, []any{e.Value}})
			}
			continue
		}
		for _, op := range e.Value.(bson.D) {
			switch op.Key {
			case "$eq":
				out = append(out, Equality{e.Key, []any{op.Value}})
			case "$in":
				if list, ok := op.Value.(bson.A); ok && !slices.ContainsFunc(list, func(v any) bool { _, r := v.(bson.Regex); return r }) {
					out = append(out, Equality{e.Key, list})
				}
			}
		}
	}
	return out
}

// FillTimestamps puts the cluster's time into the empty timestamps at the top level of a document
// that is inserted or replaces another. An empty one as _id stays.
func FillTimestamps(d bson.D, env *Env) {
	for i, e := range d {
		if e.Key != "_id" && e.Value == (bson.Timestamp{}) {
			d[i].Value = env.ClusterTime
		}
	}
}
