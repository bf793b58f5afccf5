package conformance

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
)

// The README's tables name every setting of the services with its default, and no other.
func TestReadmeTellsEverySetting(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\n## Configuration\n")
	require.True(t, found, "README.md has a section Configuration")
	section, _, _ := strings.Cut(rest, "\n## ")
	told := map[string]string{}
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
			continue
		}
		told[strings.Trim(cells[1], " `")] = strings.Trim(cells[2], " `")
	}
	known := map[string]string{}
	settings(reflect.TypeFor[producer.Config](), known)
	settings(reflect.TypeFor[projector.Config](), known)
	known["STREAM_NAME"] = "DATABASE.COLLECTION" // derived, not a default of the field
	require.Equal(t, known, told)
}

func settings(config reflect.Type, known map[string]string) {
	for field := range config.Fields() {
		if field.Anonymous {
			settings(field.Type, known)
			continue
		}
		value := field.Tag.Get("default")
		if field.Tag.Get("required") == "true" {
			value = "required"
		}
		known[field.Tag.Get("envconfig")] = value
	}
}
