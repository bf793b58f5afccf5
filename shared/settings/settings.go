// Package settings reads a service's configuration from the environment with envconfig, and reports
// all problems at once, so that a wrong deployment can be corrected in one go.
//
// No message quotes a setting that may be a secret. Checks quote only numbers, durations and
// choices.
package settings

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kelseyhightower/envconfig"
)

// Problems are all problems of the settings, in the order of the struct's fields.
type Problems []error

func (p Problems) Error() string {
	text := "1 setting must be fixed:"
	if len(p) != 1 {
		text = fmt.Sprintf("%d settings must be fixed:", len(p))
	}
	for _, problem := range p {
		text += "\n  - " + problem.Error()
	}
	return text
}

// Unwrap gives the problems to errors.Is and errors.As.
func (p Problems) Unwrap() []error { return p }

// Load fills the struct that spec points to from the environment, according to its envconfig tags,
// and calls its method Validate if it has one, which returns all problems, joined ([errors.Join]),
// or nil. A field that cannot be read is validated with its default, so that one problem neither
// hides nor causes another. The error is a [Problems].
func Load(spec any) error { return LoadWithPrefix(spec, "") }

// LoadWithPrefix is like [Load], with variables whose names begin with prefix taking precedence
// over those without it, which several callers may share. A problem names the variable that the
// value came from.
func LoadWithPrefix(spec any, prefix string) error {
	var problems Problems
	load(reflect.ValueOf(spec).Elem(), prefix, &problems)
	unreadable := len(problems)
	if v, ok := spec.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			for _, problem := range flatten(err) {
				problem = renamed(problem, prefix)
				if !slices.ContainsFunc(problems[:unreadable], func(p error) bool { return about(p, problem) }) {
					problems = append(problems, problem)
				}
			}
		}
	}
	if len(problems) > 0 {
		return problems
	}
	return nil
}

// about reports whether a problem begins with one of the settings that could not be read.
func about(unreadable, problem error) bool {
	subjects, _, _ := strings.Cut(unreadable.Error(), ":")
	subject, _, _ := strings.Cut(problem.Error(), ":")
	return subjects == subject || strings.HasSuffix(subjects, " (or "+subject+")")
}

// name matches the name of a variable in a text.
var name = regexp.MustCompile(`\b[A-Z][A-Z0-9]*(_[A-Z0-9]+)+\b`)

// renamed returns a problem with the names of the variables that are in force.
func renamed(problem error, prefix string) error {
	if prefix == "" {
		return problem
	}
	text := name.ReplaceAllStringFunc(problem.Error(), func(shared string) string {
		if _, own := os.LookupEnv(prefix + shared); own {
			return prefix + shared
		}
		return shared
	})
	if text == problem.Error() {
		return problem
	}
	return errors.New(text)
}

// load reads each field separately, because envconfig stops at the first problem of a struct.
func load(v reflect.Value, prefix string, problems *Problems) {
	for field, into := range v.Fields() {
		if field.Anonymous {
			load(into, prefix, problems)
			continue
		}
		if field.Tag.Get("ignored") == "true" {
			continue
		}
		shared := field.Tag.Get("envconfig")
		if _, own := os.LookupEnv(prefix + shared); own && prefix != "" {
			field.Tag = reflect.StructTag(strings.Replace(string(field.Tag), strconv.Quote(shared), strconv.Quote(prefix+shared), 1))
		}
		value, err := read(field)
		if err != nil {
			*problems = append(*problems, describe(field, prefix+shared, err))
			field.Tag = reflect.StructTag(fmt.Sprintf("default:%q", field.Tag.Get("default")))
			field.Name = "NotInTheEnvironment"
			value, _ = read(field)
		}
		into.Set(value)
	}
}

func read(field reflect.StructField) (reflect.Value, error) {
	single := reflect.New(reflect.StructOf([]reflect.StructField{field}))
	err := envconfig.Process("", single.Interface())
	if value, set := os.LookupEnv(field.Tag.Get("envconfig")); err == nil && set && strings.TrimSpace(value) == "" && field.Tag.Get("required") == "true" {
		err = errEmpty // envconfig takes it for a value; a database without a name would be a stream without a source
	}
	return single.Elem().Field(0), err
}

// errEmpty is a required setting that is set, but empty.
var errEmpty = errors.New("empty")

// describe returns the problem of a field. own is the variable that takes precedence over the
// field's variable, or the same one.
func describe(field reflect.StructField, own string, err error) error {
	name := field.Tag.Get("envconfig")
	if parse, ok := errors.AsType[*envconfig.ParseError](err); ok {
		return fmt.Errorf("%s: its value cannot be read as %s", parse.KeyName, kind(field.Type))
	}
	if errors.Is(err, errEmpty) {
		return fmt.Errorf("%s: is required and empty", name)
	}
	if _, set := os.LookupEnv(name); !set {
		if own != name {
			return fmt.Errorf("%s (or %s): is required and not set", own, name)
		}
		return fmt.Errorf("%s: is required and not set", name)
	}
	return fmt.Errorf("%s: cannot be read", name)
}

// kind returns the form of the values that a field accepts, with an example if it is not obvious.
func kind(t reflect.Type) string {
	switch t.String() {
	case "time.Duration":
		return "a duration (for example 500ms, 15s, 2m)"
	case "bool":
		return "true or false"
	case "slog.Level":
		return "a log level (debug, info, warn or error)"
	case "time.Time", "*time.Time":
		return "an RFC 3339 time (for example 2026-01-31T12:00:00Z)"
	case "envelope.SessionKey":
		return "aggregate, or bucket:N with N from 1 to 65536"
	}
	switch {
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Int64:
		return "a whole number"
	case t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uint64:
		return "a whole number of 0 or more"
	}
	return "a " + t.String()
}

func flatten(err error) Problems {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all Problems
		for _, e := range joined.Unwrap() {
			all = append(all, flatten(e)...)
		}
		return all
	}
	return Problems{err}
}
