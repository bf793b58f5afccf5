package deploy

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	fenced    = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	spoken    = regexp.MustCompile("`[^`\n]*`")
	link      = regexp.MustCompile(`\]\(([^)#\s]*)(#[^)\s]*)?\)`)
	commanded = regexp.MustCompile("(?m)(?:`|^\\$ )make ([a-z-]+)")
	called    = regexp.MustCompile("`([A-Za-z]+)`")
	named     = regexp.MustCompile(`\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b`)
	ours      = regexp.MustCompile("^`(?:--|producer |projector |scripts/|go run )")
	flagged   = regexp.MustCompile("(?:^`| )--([a-z-]+)\\b")
	method    = regexp.MustCompile("`\\(\\*(\\w+)\\)\\.(\\w+)`")
	heading   = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

// documents returns all pages of the repository, by their paths in it.
func documents(t *testing.T) map[string]string {
	t.Helper()
	pages := files(t, ".", extension(".md"))
	for _, page := range []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/README.md", "infra/README.md"} {
		require.Contains(t, pages, page)
	}
	return pages
}

// prose returns a page without its code.
func prose(text string) string { return spoken.ReplaceAllString(fenced.ReplaceAllString(text, ""), "") }

// Links within the repository lead to an existing file, and to an existing heading in it.
func TestLinksResolve(t *testing.T) {
	pages, checked := documents(t), 0
	for page, text := range pages {
		for _, m := range link.FindAllStringSubmatch(prose(text), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			checked++
			to := page
			if m[1] != "" {
				to = path.Join(path.Dir(page), m[1])
			}
			_, err := os.Stat(filepath.Join(root, to))
			require.NoError(t, err, "%s: %s", page, m[0])
			if anchor := strings.TrimPrefix(m[2], "#"); anchor != "" {
				require.Contains(t, anchors(pages[to]), anchor, "%s: %s", page, m[0])
			}
		}
	}
	require.Greater(t, checked, 100, "links are found at all")
}

// Every page of docs is linked from the index.
func TestEveryPageIsInTheIndex(t *testing.T) {
	pages := documents(t)
	for page := range pages {
		if name, inside := strings.CutPrefix(page, "docs/"); inside && name != "README.md" {
			require.Contains(t, pages["docs/README.md"], "]("+name+")")
		}
	}
}

// makeTargets returns the targets of the Makefile.
func makeTargets(t *testing.T) map[string]bool {
	t.Helper()
	targets := map[string]bool{}
	for _, m := range target.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	return targets
}

// The make targets in pages exist.
func TestMakeTargetsInPagesExist(t *testing.T) {
	targets, checked := makeTargets(t), 0
	for page, text := range documents(t) {
		for _, m := range commanded.FindAllStringSubmatch(text, -1) {
			checked++
			require.True(t, targets[m[1]], "%s: make %s", page, m[1])
		}
	}
	require.Greater(t, checked, 30, "commands are found at all")
}

// code returns the text of all files that are not pages: programs, scripts, templates and the like.
func code(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, text := range files(t, ".", func(name string) bool {
		extensions := []string{".go", ".sh", ".ps1", ".yaml", ".yml", ".bicep", ".json", ""}
		return slices.Contains(extensions, path.Ext(name)) && path.Base(name) != "documents_test.go"
	}) {
		all.WriteString(text)
	}
	return all.String()
}

// Settings and flags in pages exist: our own, and those of the programs that our scripts call.
func TestSettingsAndFlagsInPagesExist(t *testing.T) {
	all, checked := code(t), 0
	for page, text := range documents(t) {
		for _, word := range spoken.FindAllString(fenced.ReplaceAllString(text, ""), -1) {
			for _, m := range named.FindAllString(word, -1) {
				if strings.HasPrefix(m, "OTEL_") { // OpenTelemetry's own, which its SDK reads
					continue
				}
				checked++
				name := m
				for _, stream := range []string{"ORDERS_", "PAYMENTS_", "PAYMENT_"} { // the examples of a stream's own settings, and of a misspelt one
					name = strings.TrimPrefix(name, stream)
				}
				require.True(t, strings.Contains(all, name), "%s: %s", page, word)
			}
			if !ours.MatchString(word) {
				continue
			}
			for _, m := range flagged.FindAllStringSubmatch(word, -1) {
				checked++
				require.True(t, strings.Contains(all, `"`+m[1]+`"`) || strings.Contains(all, "--"+m[1]), "%s: %s", page, word)
			}
		}
	}
	require.Greater(t, checked, 200, "settings and flags are found at all")
}

// The functions in the tour of the code are in the files that it names.
func TestTheTourOfTheCodeNamesExistingFunctions(t *testing.T) {
	_, tour, found := strings.Cut(read(t, "CONTRIBUTING.md"), "\n## A tour of the code\n")
	require.True(t, found)
	checked := 0
	for line := range strings.Lines(tour) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 {
			continue
		}
		file := link.FindStringSubmatch(cells[1])
		if file == nil {
			continue // the head of a table
		}
		code := read(t, file[1])
		for _, m := range called.FindAllStringSubmatch(cells[2], -1) {
			checked++
			declared := regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + m[1] + `\(`)
			require.True(t, declared.MatchString(code), "CONTRIBUTING.md: %s has no function %s", file[1], m[1])
		}
	}
	require.Greater(t, checked, 40, "functions are found at all")
}

// Methods in pages exist.
func TestMethodsInPagesExist(t *testing.T) {
	all, checked := code(t), 0
	for page, text := range documents(t) {
		for _, m := range method.FindAllStringSubmatch(text, -1) {
			checked++
			declared := regexp.MustCompile(`(?m)^func \(\w+ \*` + m[1] + `\) ` + m[2] + `\(`)
			require.True(t, declared.MatchString(all), "%s: %s", page, m[0])
		}
	}
	require.Greater(t, checked, 5, "methods are found at all")
}

// anchors returns the anchors that GitHub gives to headings.
func anchors(markdown string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(markdown, -1) {
		kept := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', r >= 'a' && r <= 'z', r >= '0' && r <= '9':
				return r
			}
			return -1
		}, strings.ToLower(m[1]))
		found[kept] = true
	}
	return found
}
