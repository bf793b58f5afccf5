package modules_test

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/child"
	"github.com/sluice-cdc/sluice/tests/internal/modules"
)

// outside is a folder outside the repository, and the proxy that provides its modules.
type outside struct {
	root  string
	proxy *modules.Proxy
}

func newOutside(t *testing.T) outside {
	t.Helper()
	root, err := child.Checkout()
	require.NoError(t, err)
	proxy, err := modules.Pack(root, t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Forget(context.WithoutCancel(t.Context()))) })
	return outside{root, proxy}
}

// run runs a go command in a folder, which must succeed, and returns its output.
func (o outside) run(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := o.proxy.Go(t.Context(), dir, env, args...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	require.NoError(t, err, "go %s\n%s%s", strings.Join(args, " "), out, &complaints)
	return string(out)
}

func TestTheProgramsAreInstalledByTheirVersion(t *testing.T) {
	o := newOutside(t)
	bin := t.TempDir()
	for program, from := range map[string]string{
		"producer": "producer/cmd/producer", "projector": "projector/cmd/projector", "sluice-emulator": "tests/emulator/cmd/sluice-emulator",
	} {
		o.run(t, t.TempDir(), []string{"GOBIN=" + bin}, "install", modules.Path(from)+"@"+o.proxy.Version)
		path := filepath.Join(bin, program)
		help, err := exec.CommandContext(t.Context(), path, "--help").CombinedOutput()
		require.NoError(t, err, "%s --help\n%s", program, help)
		require.Contains(t, string(help), program)
		built, err := buildinfo.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, o.proxy.Version, built.Main.Version)

		// What users build is what is tested here: the workspace raises no version.
		inside, err := exec.CommandContext(t.Context(), "go", "list", "-C", o.root, "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}", modules.Path(from)).Output()
		require.NoError(t, err)
		for _, m := range built.Deps {
			if !strings.HasPrefix(m.Path, modules.Base+"/") {
				require.Contains(t, strings.Split(string(inside), "\n"), m.Path+" "+m.Version, program)
			}
		}
	}
}

func TestAUsersTestRunsAgainstTheEmbeddedServers(t *testing.T) {
	o := newOutside(t)
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "user"))))
	o.requires(t, dir,
		"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus", "go.mongodb.org/mongo-driver/v2", "github.com/stretchr/testify")
	require.Contains(t, o.run(t, dir, nil, "test", "-count", "1", "./..."), "ok")

	// The code in the README is the code that ran.
	readme, err := os.ReadFile(filepath.Join(o.root, "tests", "emulator", "README.md"))
	require.NoError(t, err)
	ran, err := os.ReadFile(filepath.Join("testdata", "user", "servers_test.go"))
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(func .*?)```").FindAllStringSubmatch(string(readme), -1)
	require.Len(t, blocks, 3)
	for _, b := range blocks {
		require.Contains(t, string(ran), b[1])
	}
	for language, example := range map[string]string{"js": "session.js", "python": "session.py"} { // conformance/clients runs them
		text, err := os.ReadFile(filepath.Join(o.root, "tests", "emulator", "conformance", "clients", "examples", example))
		require.NoError(t, err)
		require.Contains(t, string(readme), "```"+language+"\n"+string(text)+"```\n")
	}
}

// A copy of the example is built with the modules that users get, and its own test passes. That it
// builds its read model from the events is tested by the guide, which shows the same code.
func TestAUsersProjectorIsBuiltOutside(t *testing.T) {
	o := newOutside(t)
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(o.root, "projector", "examples", "customer-totals"))))
	require.NoError(t, os.Remove(filepath.Join(dir, "go.sum"))) // a copy with other versions generates its own
	for _, module := range []string{"projector", "shared"} {
		o.run(t, dir, nil, "mod", "edit", "-require", modules.Path(module)+"@"+o.proxy.Version)
	}
	require.Contains(t, o.run(t, dir, nil, "test", "-count", "1", "./..."), "ok")
	o.run(t, dir, nil, "build", "./...")
}

// The dependencies of the embedded servers become dependencies of a user's test.
func TestTheEmbeddedServersHaveFewDependencies(t *testing.T) {
	o := newOutside(t)
	dir := t.TempDir()
	o.requires(t, dir)
	needed := o.run(t, dir, nil, "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", modules.Path("tests/emulator/..."))
	for m := range strings.FieldsSeq(needed) {
		if !strings.HasPrefix(m, modules.Base+"/") {
			require.Contains(t, []string{"github.com/google/uuid", "go.mongodb.org/mongo-driver/v2", "golang.org/x/sync", "golang.org/x/text"}, m, needed)
		}
	}
}

// requires creates a module that requires the embedded servers, and other modules in the versions
// that the tests use.
func (o outside) requires(t *testing.T, dir string, others ...string) {
	t.Helper()
	edit := []string{"mod", "edit", "-require=" + modules.Path("tests/emulator") + "@" + o.proxy.Version}
	if len(others) > 0 {
		list := append([]string{"list", "-C", filepath.Join(o.root, "tests"), "-m", "-f", "-require={{.Path}}@{{.Version}}"}, others...)
		known, err := exec.CommandContext(t.Context(), "go", list...).Output()
		require.NoError(t, err)
		edit = append(edit, strings.Fields(string(known))...)
	}
	o.run(t, dir, nil, "mod", "init", "example.com/app")
	o.run(t, dir, nil, edit...)
}
