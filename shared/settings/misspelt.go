package settings

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Known is what a program reads from its environment, in order to find variables that look like a
// misspelt setting: their names are similar to a setting, or begin as only settings do. All other
// variables are ignored.
type Known struct {
	// Spec is a struct with the settings in its envconfig tags, or a pointer to one.
	Spec any
	// Prefixes are the beginnings of the variables of single streams, such as ORDERS_. The settings
	// in ofProcess do not have such forms.
	Prefixes  []string
	OfProcess []string
	// Foreign are other programs' variables that look like a misspelt setting.
	Foreign []string
}

// Names returns the variables of a struct's settings, in order.
func Names(spec any) (names []string) {
	for field := range fields(reflect.TypeOf(spec)) {
		names = append(names, field.Tag.Get("envconfig"))
	}
	return names
}

// fields returns the fields of a struct that have a setting.
func fields(t reflect.Type) func(yield func(reflect.StructField) bool) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return func(yield func(reflect.StructField) bool) {
		for field := range t.Fields() {
			if field.Anonymous {
				for inner := range fields(field.Type) {
					if !yield(inner) {
						return
					}
				}
			} else if field.Tag.Get("ignored") != "true" && !yield(field) {
				return
			}
		}
	}
}

// standard are the beginnings of variables of other programs and platforms. Such variables are
// never reported, whatever they look like.
var standard = []string{
	"OTEL_", "AZURE_", "KUBERNETES_", "CONTAINER_APP_", "IDENTITY_", "MSI_", "APPLICATIONINSIGHTS_", "AWS_", "GCP_", "DAPR_", "SSL_", "LC_", "GO",
}

// serviceLink matches the ends that Kubernetes and Docker append to the name of a service, in the
// variables with its address. A service may have the name of a stream.
var serviceLink = regexp.MustCompile(`^(NAME|SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// Misspelt returns a problem for each variable of an environment (NAME=VALUE) that resembles a
// misspelt setting, or nil. No value is quoted.
func (k Known) Misspelt(environ []string) Problems {
	shared := Names(k.Spec)
	ofStreams := slices.DeleteFunc(slices.Clone(shared), func(name string) bool { return slices.Contains(k.OfProcess, name) })
	all := slices.Clone(shared)
	for _, prefix := range k.Prefixes {
		for _, name := range shared { // those of the process, too: they are refused elsewhere
			all = append(all, prefix+name)
		}
	}
	var problems Problems
	for _, variable := range slices.Sorted(slices.Values(environ)) {
		name, _, _ := strings.Cut(variable, "=")
		if slices.Contains(all, name) || slices.Contains(k.Foreign, name) || slices.ContainsFunc(standard, func(s string) bool { return strings.HasPrefix(name, s) }) {
			continue
		}
		if problem := k.misspelling(name, all, ofStreams); problem != "" {
			problems = append(problems, errors.New(name+": "+problem+" (if it belongs to another program, name it in IGNORE_VARIABLES)"))
		}
	}
	return problems
}

// misspelling returns what is wrong with a variable that is not a setting; "" if nothing is.
func (k Known) misspelling(name string, all, ofStreams []string) string {
	if meant := nearest(name, all); meant != "" {
		return "is no setting; did you mean " + meant + "?"
	}
	for _, prefix := range k.Prefixes {
		own, found := strings.CutPrefix(name, prefix)
		if !found || serviceLink.MatchString(own) {
			continue
		}
		problem := fmt.Sprintf("has the prefix of one stream's settings, but there is no setting %s", own)
		for _, setting := range ofStreams {
			if strings.HasSuffix(setting, "_"+own) {
				return problem + "; did you mean " + prefix + setting + "?"
			}
		}
		return problem
	}
	if len(k.Prefixes) == 0 {
		return ""
	}
	for _, setting := range ofStreams {
		if strings.Contains(setting, "_") && strings.HasSuffix(name, "_"+setting) {
			return fmt.Sprintf("is the setting %s of a stream that STREAMS does not name; what a stream's settings begin with is %s",
				setting, strings.Join(k.Prefixes, ", "))
		}
	}
	return ""
}

// nearest returns the setting that a name was most likely meant to be; "" if it is not similar to
// any.
func nearest(name string, settings []string) string {
	upper := strings.NewReplacer("-", "_", ".", "_").Replace(strings.ToUpper(name))
	best, distance := "", 3
	for _, setting := range settings {
		allowed := 2
		if len(setting) < 10 { // short names are near to many words
			allowed = 1
		}
		if d := edits(upper, setting); d <= allowed && d < distance {
			best, distance = setting, d
		}
	}
	if best != "" {
		return best
	}
	words := strings.Split(upper, "_")
	for _, setting := range settings {
		if len(words) > 1 && lacksOne(words, strings.Split(setting, "_")) {
			return setting
		}
	}
	return ""
}

// lacksOne reports whether words are those of a setting without one of them: AGGREGATE_PATH for
// AGGREGATE_ID_PATH.
func lacksOne(words, setting []string) bool {
	if len(words)+1 != len(setting) {
		return false
	}
	for i := range setting {
		if slices.Equal(words, slices.Delete(slices.Clone(setting), i, i+1)) {
			return true
		}
	}
	return false
}

// Near returns the word that another was most likely meant to be; "" if none is similar.
func Near(word string, words []string) string {
	best, distance := "", 3
	for _, meant := range words {
		if d := edits(word, meant); d < distance && d < len(meant) {
			best, distance = meant, d
		}
	}
	return best
}

// edits returns the number of letters to insert, delete, replace or swap with a neighbour to get
// from a to b.
func edits(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := last[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			row[j] = min(last[j]+1, row[j-1]+1, replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
