package docs_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/tests/internal/tree"
)

// The tables of docs/configure.md name every setting of each service with its default, and no
// other.
func TestTheDocumentationListsEverySetting(t *testing.T) {
	for service, config := range map[string]reflect.Type{
		"producer": reflect.TypeFor[producer.Config](), "projector": reflect.TypeFor[projector.Config](),
	} {
		t.Run(service, func(t *testing.T) {
			documented, known := map[string]string{}, map[string]string{}
			readTables(t, "../../docs/configure.md", "Both services", documented)
			readTables(t, "../../docs/configure.md", "The "+service, documented)
			settings(config, known)
			if service == "producer" {
				known["STREAM_NAME"] = "DATABASE.COLLECTION" // derived, not a default of the field
			}
			require.Equal(t, known, documented)
		})
	}
}

// readTables reads the tables of a section of a page into documented.
func readTables(t *testing.T, page, title string, documented map[string]string) {
	t.Helper()
	tree.Depend()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\n## "+title+"\n")
	require.True(t, found, "%s has a section %s", page, title)
	section, _, _ := strings.Cut(rest, "\n## ")
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
			continue
		}
		documented[strings.Trim(cells[1], " `")] = strings.Trim(cells[2], " `")
	}
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
