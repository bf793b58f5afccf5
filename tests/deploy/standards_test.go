package deploy

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

var (
	used    = regexp.MustCompile(`(?m)uses: (\S+)`)
	pinned  = regexp.MustCompile(`^[\w.-]+/[\w.-]+@v\d+(\.\d+)*$`)
	made    = regexp.MustCompile(`(?m)(?:run: |^\s+|&& )make ([a-z-]+)`)
	target  = regexp.MustCompile(`(?m)^([a-z-]+):`)
	runFile = regexp.MustCompile(`(?m)run: (\.ci/\S+|scripts/\S+)`)
)

// Workflows name actions by tag, ask for no more rights than they need, and call what exists.
func TestWorkflowsKeepTheRules(t *testing.T) {
	targets := map[string]bool{}
	for _, m := range target.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	workflows, err := filepath.Glob(filepath.Join(root, ".github/workflows/*"))
	require.NoError(t, err)
	require.NotEmpty(t, workflows)
	for _, file := range workflows {
		name := filepath.Base(file)
		text := read(t, ".github/workflows/"+name)
		var workflow struct {
			Permissions map[string]string
			Jobs        map[string]struct {
				Permissions map[string]string
				Timeout     int `yaml:"timeout-minutes"`
			}
		}
		require.NoError(t, yaml.Unmarshal([]byte(text), &workflow), name)
		want := map[string]string{"contents": "read"}
		switch name {
		case "azure-dev.yml":
			want["id-token"] = "write" // to sign in without a password
		case "release.yml":
			want["contents"] = "write" // to push the release; it is started by hand
		}
		require.Equal(t, want, workflow.Permissions, name)
		for job, j := range workflow.Jobs {
			require.Empty(t, j.Permissions, "%s: %s", name, job)
			require.Positive(t, j.Timeout, "%s: %s has no end", name, job)
		}
		for _, m := range used.FindAllStringSubmatch(text, -1) {
			require.Regexp(t, pinned, m[1], name)
		}
		for _, m := range made.FindAllStringSubmatch(text, -1) {
			require.True(t, targets[m[1]], "%s: make %s", name, m[1])
		}
		for _, m := range runFile.FindAllStringSubmatch(text, -1) {
			require.FileExists(t, filepath.Join(root, m[1]), name)
		}
	}
}

// What the gallery of azd templates and GitHub look for.
func TestTheRepositoryHasWhatATemplateNeeds(t *testing.T) {
	for _, file := range []string{
		"azure.yaml", "infra/main.bicep", "LICENSE", ".devcontainer/devcontainer.json",
		".github/SECURITY.md", "CONTRIBUTING.md", ".github/CODE_OF_CONDUCT.md", ".github/workflows/azure-dev.yml",
	} {
		require.FileExists(t, filepath.Join(root, file))
	}
	for _, form := range []string{"bug.yml", "feature.yml", "config.yml"} {
		var content map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(read(t, ".github/ISSUE_TEMPLATE/"+form)), &content), form)
		require.NotEmpty(t, content, form)
	}
	readme := read(t, "infra/README.md")
	for _, heading := range []string{"Features", "Getting started", "Guidance", "Security", "Resources"} {
		require.Contains(t, readme, "\n## "+heading+"\n")
	}
}
