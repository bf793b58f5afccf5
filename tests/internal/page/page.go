// Package page reads the console commands of a page of the documentation, so that a test can follow
// them word by word.
package page

import (
	"os"
	"strings"
	"testing"

	"github.com/sluice-cdc/sluice/tests/internal/tree"
)

// Step is one command, with the output that the page shows.
type Step struct{ Command, Output string }

// Steps returns the commands of a section of a page, in order. The heading is given with its signs,
// such as "## Build".
func Steps(t *testing.T, path, heading string) (steps []Step) {
	tree.Depend()
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n"+heading+"\n")
	if !found {
		t.Fatalf("%s has no section %q", path, heading)
	}
	level, _, _ := strings.Cut(heading, " ")
	section, _, _ = strings.Cut(section, "\n"+level+" ")
	in := false
	for line := range strings.Lines(section) {
		line = strings.TrimPrefix(line, "   ")
		switch command, is := strings.CutPrefix(line, "$ "); {
		case strings.HasPrefix(line, "```"):
			in = strings.TrimSpace(line) == "```console"
		case in && is:
			steps = append(steps, Step{Command: strings.TrimSpace(command)})
		case in:
			steps[len(steps)-1].Output += line
		}
	}
	return steps
}
