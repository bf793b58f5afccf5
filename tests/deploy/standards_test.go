package deploy

import (
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

var (
	used    = regexp.MustCompile(`(?m)uses: (.+)$`)
	pinned  = regexp.MustCompile(`^[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	made    = regexp.MustCompile(`(?m)(?:run: |^\s+|&& )make ([a-z-]+)`)
	target  = regexp.MustCompile(`(?m)^([a-z-]+):`)
	runFile = regexp.MustCompile(`(?m)run: (\.ci/\S+|scripts/\S+)`)
)

// rights lists the permissions of jobs beyond reading the code, each for a reason.
var rights = map[string]map[string]string{
	"azure-dev.yml deploy":  {"contents": "read", "id-token": "write"}, // to sign in without a password
	"azure-dev.yml what-if": {"contents": "read", "id-token": "write"},
	"release.yml release":   {"contents": "write"}, // to push the release; an operator starts it
	"release.yml images":    {"contents": "read", "packages": "write"},
	"release.yml manifests": {"contents": "read", "packages": "write"},
}

// Workflows name actions by commit, with the version in a comment, give no job more permissions
// than it needs, and call what exists.
func TestWorkflowsFollowTheRules(t *testing.T) {
	targets := makeTargets(t)
	workflows, err := filepath.Glob(filepath.Join(root, ".github/workflows/*"))
	require.NoError(t, err)
	require.NotEmpty(t, workflows)
	unseen := maps.Clone(rights)
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
		require.Equal(t, map[string]string{"contents": "read"}, workflow.Permissions, name)
		for job, j := range workflow.Jobs {
			require.Equal(t, rights[name+" "+job], j.Permissions, "%s: %s", name, job)
			delete(unseen, name+" "+job)
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
	require.Empty(t, unseen, "rights of jobs that are no more")
}

// A deployment requires a successful run of ci: the workflow waits for it and deploys its commit,
// only from this repository's main and a protected environment. A pull request runs with an
// identity of its own.
func TestOnlyTestedCommitsAreDeployed(t *testing.T) {
	var workflow struct {
		On struct {
			Run  struct{ Workflows, Branches, Types []string } `yaml:"workflow_run"`
			Push any
		}
		Env  map[string]string
		Jobs map[string]struct {
			If          string
			Environment string
			Env         map[string]string
			Steps       []struct {
				Uses string
				With map[string]any
			}
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, ".github/workflows/azure-dev.yml")), &workflow))
	require.Nil(t, workflow.On.Push)
	require.Equal(t, []string{"ci"}, workflow.On.Run.Workflows)
	require.Equal(t, []string{"main"}, workflow.On.Run.Branches)
	require.True(t, strings.HasPrefix(read(t, ".github/workflows/ci.yml"), "#") && strings.Contains(read(t, ".github/workflows/ci.yml"), "\nname: ci\n"))
	deploy, preview := workflow.Jobs["deploy"], workflow.Jobs["what-if"]
	require.Equal(t, "azure", deploy.Environment)
	for _, condition := range []string{
		"workflow_run.conclusion == 'success'", "workflow_run.event == 'push'", "head_repository.full_name == github.repository",
	} {
		require.Contains(t, deploy.If, condition)
	}
	require.Equal(t, "${{ github.event.workflow_run.head_sha || github.sha }}", deploy.Steps[0].With["ref"])
	require.Contains(t, preview.If, "head.repo.full_name == github.repository")
	require.Empty(t, preview.Environment)
	require.Equal(t, "${{ vars.AZURE_PREVIEW_CLIENT_ID }}", preview.Env["AZURE_CLIENT_ID"])
	require.Equal(t, map[string]string{"AZURE_CLIENT_ID": "${{ vars.AZURE_CLIENT_ID }}"}, deploy.Env)
	for name := range preview.Env {
		require.NotContains(t, workflow.Env, name, "what-if must ask about what would be deployed")
	}
	for name, value := range workflow.Env {
		require.NotContains(t, value, "secrets.", name)
	}
	for name, value := range preview.Env {
		require.NotContains(t, value, "secrets.", name)
	}
}

// Every file that contains versions is kept current by Dependabot.
func TestDependabotCoversEveryManifest(t *testing.T) {
	kinds := map[string]string{
		"go.mod": "gomod", "Dockerfile": "docker", "package.json": "npm", "requirements.txt": "pip", "compose.yaml": "docker-compose",
	}
	var config struct {
		Updates []struct {
			Ecosystem   string `yaml:"package-ecosystem"`
			Directory   string
			Directories []string
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, ".github/dependabot.yml")), &config))
	kept := map[string]bool{}
	for _, u := range config.Updates {
		for _, directory := range append(u.Directories, u.Directory) {
			if directory != "" {
				require.False(t, kept[u.Ecosystem+" "+directory], "%s %s twice", u.Ecosystem, directory)
				kept[u.Ecosystem+" "+directory] = true
			}
		}
	}
	want := map[string]bool{"github-actions /": true}
	for file := range files(t, ".", func(name string) bool { return kinds[path.Base(name)] != "" }) {
		want[kinds[path.Base(file)]+" /"+path.Dir(file)] = true
	}
	require.Equal(t, want, kept)
}

// The repository has what the gallery of azd templates and GitHub require.
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
