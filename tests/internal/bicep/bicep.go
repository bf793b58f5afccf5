// Package bicep reads Bicep files as data, so that tests can compare a template with what the code
// expects.
//
// It reads the structure: declarations, objects, arrays, literals. It evaluates nothing and checks
// no types; an expression is its text and the literals, arrays and objects within it. If it cannot
// read something, it returns an error with the line. Whether a template is correct is checked by
// the compiler (bicep build, in CI).
package bicep

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Kind of a value.
type Kind int

// The kinds.
const (
	Expression Kind = iota // anything that is not a literal below
	String                 // a literal without ${…}
	Object
	Array
)

// Value is the value of a field, an array's item or a declaration.
type Value struct {
	Kind Kind
	Line int
	// Text is the content of a string; otherwise it is the source, with white space between tokens
	// reduced to one space.
	Text   string
	Fields []Field // of an object
	Nested []Declaration
	Items  []Value // of an array
	Parts  []Value // literals, objects and arrays within an expression
}

// Field is a field of an object. Name is the key as written, without quotes.
type Field struct {
	Name  string
	Value Value
}

// Declaration is one statement of a file.
type Declaration struct {
	Keyword    string // targetScope, param, var, type, resource, module, output
	Name       string
	Type       string // of a param or output; a resource's "type@version"; a module's path
	Existing   bool
	Decorators []string
	// Condition is the condition of "= if (…)". Value is the body if the declaration is a loop.
	Condition string
	Value     Value
	HasValue  bool
	Line      int
}

// File is a parsed file.
type File struct {
	Path         string
	Declarations []Declaration
}

// ReadFile parses the file at path.
func ReadFile(path string) (*File, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	return Parse(path, string(source))
}

// All returns the declarations with the keyword, in the file's order.
func (f *File) All(keyword string) []Declaration {
	return slices.DeleteFunc(slices.Clone(f.Declarations), func(d Declaration) bool { return d.Keyword != keyword })
}

// Find returns the declaration with a name.
func (f *File) Find(keyword, name string) (Declaration, bool) {
	i := slices.IndexFunc(f.Declarations, func(d Declaration) bool { return d.Keyword == keyword && d.Name == name })
	if i < 0 {
		return Declaration{}, false
	}
	return f.Declarations[i], true
}

// Kind returns a resource's type without the version.
func (d Declaration) Kind() string {
	kind, _, _ := strings.Cut(d.Type, "@")
	return kind
}

// Secure reports whether @secure() is among the decorators.
func (d Declaration) Secure() bool { return slices.Contains(d.Decorators, "secure ( )") }

// Field returns the value of an object's field.
func (v Value) Field(name string) (Value, bool) {
	i := slices.IndexFunc(v.Fields, func(f Field) bool { return f.Name == name })
	if i < 0 {
		return Value{}, false
	}
	return v.Fields[i].Value, true
}

// At returns the value at a path of field names; the zero Value if nothing is there.
func (v Value) At(path ...string) Value {
	for _, name := range path {
		v, _ = v.Field(name)
	}
	return v
}

// Walk calls visit with the value and everything within it, outermost first. The path consists of
// the field names that lead there.
func (v Value) Walk(visit func(path []string, v Value)) { v.walk(nil, visit) }

func (v Value) walk(path []string, visit func([]string, Value)) {
	visit(path, v)
	for _, f := range v.Fields {
		f.Value.walk(append(slices.Clone(path), f.Name), visit)
	}
	for _, within := range [][]Value{v.Items, v.Parts} {
		for _, w := range within {
			w.walk(path, visit)
		}
	}
}
