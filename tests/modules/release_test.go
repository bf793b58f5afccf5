package modules_test

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/child"
	"github.com/sluice-cdc/sluice/tests/internal/modules"
)

// clone commits the working tree to a new repository, and returns that repository's folder.
func clone(t *testing.T) string {
	t.Helper()
	root, err := child.Checkout()
	require.NoError(t, err)
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		t.Skipf("a release is made of a git repository: %v", err)
	}
	dir := t.TempDir()
	list, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	require.NoError(t, err)
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		info, err := os.Stat(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, and not yet committed
		}
		require.NoError(t, err)
		text, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, info.Mode().Perm()))
	}
	git(t, dir, "init", "-q", "-b", "main")
	git(t, dir, "config", "user.name", "tests")
	git(t, dir, "config", "user.email", "tests@example.com")
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "-m", "As it stands")
	return dir
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...).CombinedOutput()
	require.NoError(t, err, "git %s\n%s", strings.Join(args, " "), out)
	return string(out)
}

// release runs the script, and returns its output.
func release(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "scripts", "release.sh"), args...)
	cmd.Env = append(os.Environ(), "GOFLAGS=-trimpath")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// The developer tools and the check of infra/kubernetes are the only modules that require none of
// the others.
func TestEveryModuleIsReleasedOrFollowsTheRelease(t *testing.T) {
	root, err := child.Checkout()
	require.NoError(t, err)
	var folders []string
	for file := range strings.FieldsSeq(git(t, root, "ls-files", "go.mod", "*/go.mod")) {
		folders = append(folders, path.Dir(file))
	}
	require.ElementsMatch(t, append(modules.All(), "scripts/kubernetes", "scripts/tools", "tests/deploy/kubernetes"), folders)
}

// The script itself asks the go command for the modules by their tags, and compares.
func TestAReleaseIsOneCommitWithATagForEachModule(t *testing.T) {
	dir := clone(t)
	changelog := filepath.Join(dir, "CHANGELOG.md")
	text, err := os.ReadFile(changelog)
	require.NoError(t, err)
	require.Contains(t, string(text), "\n## Unreleased\n")
	require.NoError(t, os.WriteFile(changelog, []byte(strings.Replace(string(text), "## Unreleased\n", "## Unreleased\n\n- What the test releases.\n", 1)), 0o600))
	out, err := release(t, dir, "v1.98.7")
	require.Error(t, err)
	require.Contains(t, out, "there are changes that are not committed")
	git(t, dir, "commit", "-q", "-am", "Something to release")

	out, err = release(t, dir, "v1.98.7")
	require.NoError(t, err, out)
	require.Contains(t, out, "git push --atomic origin HEAD v1.98.7 shared/v1.98.7 tests/emulator/v1.98.7 producer/v1.98.7 producer/stores/kubernetes/v1.98.7 producer/stores/redis/v1.98.7 projector/v1.98.7")
	require.Empty(t, git(t, dir, "status", "--porcelain"))
	require.Equal(t, "Release v1.98.7\n", git(t, dir, "log", "-1", "--format=%s", "projector/v1.98.7"))
	before, released := git(t, dir, "show", "HEAD~1:go.work"), git(t, dir, "show", "HEAD:go.work")
	require.Equal(t, released, strings.ReplaceAll(before, " v0.1.0 =>", " v1.98.7 =>"))
	for _, module := range modules.All() {
		text, err := os.ReadFile(filepath.Join(dir, module, "go.mod"))
		require.NoError(t, err)
		require.NotContains(t, string(text), "replace ")
		if module != "shared" {
			require.Contains(t, string(text), modules.Path("shared")+" v1.98.7")
		}
	}
	text, err = os.ReadFile(changelog)
	require.NoError(t, err)
	require.Regexp(t, `(?m)^## Unreleased\n\n## 1\.98\.7 - \d{4}-\d\d-\d\d\n\n- What the test releases\.`, string(text))

	// Without notes there is nothing to release, and a version is released only once.
	for _, test := range []struct{ version, want string }{
		{"v1.98.8", `CHANGELOG.md lists nothing under "## Unreleased"`},
		{"v1.98.7", "tag v1.98.7 is there already"},
		{"v2.0.0", "from v2 on the paths of the modules must end in /v2"},
		{"1.98.8", "usage: scripts/release.sh vX.Y.Z"},
	} {
		out, err := release(t, dir, test.version)
		require.Error(t, err)
		require.Contains(t, out, test.want)
	}
}
