package settings

import (
	"os"
	"reflect"
)

// Setting is one setting in force, for people.
type Setting struct {
	Name string `json:"name"`
	// Value is what the program reads; for a secret that is set, it is [Hidden].
	Value string `json:"value"`
	// From is environment or default.
	From    string `json:"from"`
	Default string `json:"default"`
	// Required and Secret are as in the documentation.
	Required bool `json:"required,omitempty"`
	Secret   bool `json:"secret,omitempty"`
}

// Hidden is shown in place of the value of a secret.
const Hidden = "(set; secret)"

// List returns all settings of a struct, in order. Each is followed by the variables that give
// single streams another value, which begin with one of the prefixes.
func List(spec any, prefixes ...string) (all []Setting) {
	for field := range fields(reflect.TypeOf(spec)) {
		shared := inForce(field, "")
		all = append(all, shared)
		for _, prefix := range prefixes {
			if own := inForce(field, prefix); own.From == fromEnvironment {
				own.Default = shared.Name + " = " + shared.Value
				own.Required = false
				all = append(all, own)
			}
		}
	}
	return all
}

const fromEnvironment = "environment"

func inForce(field reflect.StructField, prefix string) Setting {
	s := Setting{
		Name: prefix + field.Tag.Get("envconfig"), From: "default", Default: field.Tag.Get("default"),
		Required: field.Tag.Get("required") == "true", Secret: field.Tag.Get("secret") == "true",
	}
	s.Value = s.Default
	if value, set := os.LookupEnv(s.Name); set {
		s.From, s.Value = fromEnvironment, value
		if s.Secret && value != "" {
			s.Value = Hidden
		}
	}
	return s
}
