package deploy

import (
	"bufio"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const maxImageBytes = 26 << 20

type instruction struct{ name, args string }

// dockerfile reads the instructions of a Dockerfile: one a line, as ours are.
func dockerfile(t *testing.T, service string) []instruction {
	t.Helper()
	return instructions(t, read(t, service+"/Dockerfile"))
}

func instructions(t *testing.T, text string) []instruction {
	t.Helper()
	var all []instruction
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		require.False(t, strings.HasSuffix(line, `\`), "this test reads one instruction a line: %s", line)
		name, args, _ := strings.Cut(line, " ")
		all = append(all, instruction{name, strings.TrimSpace(args)})
	}
	require.NoError(t, lines.Err())
	return all
}

// build does what an engine would do with the first stage: it copies what COPY names, except what
// .dockerignore excludes, and runs each RUN command unchanged.
func build(t *testing.T, file []instruction, version string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	ignore := ignoreFile(t)
	args := []string{"VERSION=" + version}
	for i, in := range file {
		switch in.name {
		case "FROM":
			if i > 0 {
				return dir
			}
		case "WORKDIR":
			require.Equal(t, "/src", in.args, "the one directory that this test stands in for")
		case "ARG":
		case "COPY":
			fields := strings.Fields(in.args)
			copyInto(t, dir, fields[:len(fields)-1], fields[len(fields)-1], ignore)
		case "RUN":
			cmd := exec.CommandContext(t.Context(), "sh", "-ec", in.args)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), args...)
			cmd.Env = append(cmd.Env, "GOWORK=", "GOFLAGS=") // as in the image
			output, err := cmd.CombinedOutput()
			require.NoError(t, err, "RUN %s\n%s", in.args, output)
		default:
			require.Fail(t, "instruction that this test does not know", in.name)
		}
	}
	return dir
}

func copyInto(t *testing.T, dir string, sources []string, target string, ignored func(string) bool) {
	t.Helper()
	copied, tree := 0, os.DirFS(root)
	for _, source := range sources {
		matches, err := fs.Glob(tree, path.Clean(source))
		require.NoError(t, err)
		for _, match := range matches {
			require.NoError(t, fs.WalkDir(tree, match, func(file string, entry fs.DirEntry, err error) error {
				if err != nil || entry.IsDir() || ignored(file) {
					return err
				}
				within := strings.TrimPrefix(file, match+"/") // the content of a directory is copied
				if file == match {
					within = path.Base(file)
				}
				to := filepath.Join(dir, target, within)
				require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
				copied++
				return os.WriteFile(to, []byte(read(t, file)), 0o600)
			}))
		}
	}
	require.Positive(t, copied, "COPY %v: nothing is there, or .dockerignore keeps it out", sources)
}

// ignoreFile reads .dockerignore: the last pattern that matches a path or a folder above it
// decides.
func ignoreFile(t *testing.T) func(file string) bool {
	t.Helper()
	type rule struct {
		pattern *regexp.Regexp
		keep    bool
	}
	var rules []rule
	for line := range strings.Lines(read(t, ".dockerignore")) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		pattern, keep := strings.CutPrefix(line, "!")
		expression := regexp.QuoteMeta(pattern)
		expression = strings.ReplaceAll(expression, `\*\*/`, `(.*/)?`)
		expression = strings.ReplaceAll(expression, `\*`, `[^/]*`)
		rules = append(rules, rule{regexp.MustCompile("^" + expression + "(/.*)?$"), keep})
	}
	return func(file string) bool {
		ignored := false
		for _, r := range rules {
			if r.pattern.MatchString(path.Clean(file)) {
				ignored = !r.keep
			}
		}
		return ignored
	}
}

// The Dockerfile that the documentation shows for a producer with Redis builds one.
func TestTheProducerWithRedisIsBuiltAsThePageShows(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the commands build for Linux")
	}
	_, section, found := strings.Cut(read(t, "docs/install.md"), "\n### A producer with another store\n")
	require.True(t, found)
	_, section, found = strings.Cut(section, "\n```Dockerfile\n")
	require.True(t, found)
	shown, _, found := strings.Cut(section, "\n```\n")
	require.True(t, found)
	program := filepath.Join(build(t, instructions(t, shown), ""), "bin", "producer")
	built, err := buildinfo.ReadFile(program)
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(built.Deps, func(m *debug.Module) bool { return m.Path == "github.com/redis/go-redis/v9" }))
	for _, file := range []string{shown, read(t, "producer/Dockerfile")} { // both run as the user of infra/kubernetes
		require.Contains(t, file, "\nUSER 65532:65532\n")
	}
}

// The images hold one static program each, stamped with its version, and are small.
func TestTheDockerfilesBuildSmallStaticPrograms(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the commands build for Linux; what they make is looked at and run here")
	}
	for _, s := range services {
		t.Run(s.name, func(t *testing.T) {
			dir := build(t, dockerfile(t, s.name), "1.2.3-test")
			program := filepath.Join(dir, copiedProgram(t, s.name))
			info, err := os.Stat(program)
			require.NoError(t, err)
			t.Logf("%s: %.1f MB", s.name, float64(info.Size())/(1<<20))
			// distroless/static itself has about 2 MB
			require.Less(t, info.Size(), int64(maxImageBytes-2<<20))

			binary, err := elf.Open(program)
			require.NoError(t, err)
			defer func() { _ = binary.Close() }()
			for _, segment := range binary.Progs {
				require.NotEqual(t, elf.PT_INTERP, segment.Type, "it needs a dynamic linker, which the image does not have")
			}
			require.Nil(t, binary.Section(".debug_info"), "-s -w leaves it out")
			built, err := buildinfo.ReadFile(program)
			require.NoError(t, err)
			require.Contains(t, built.Settings, debug.BuildSetting{Key: "-trimpath", Value: "true"})
			require.Contains(t, built.Settings, debug.BuildSetting{Key: "CGO_ENABLED", Value: "0"})

			// It starts, and without settings it lists all missing ones at once.
			cmd := exec.CommandContext(t.Context(), program)
			cmd.Env = []string{}
			output, err := cmd.CombinedOutput()
			require.Equal(t, 2, cmd.ProcessState.ExitCode(), "%v\n%s", err, output)
			require.Contains(t, string(output), "MONGODB_URI")
			require.Equal(t, "1.2.3-test", startingVersion(t, s, program))
		})
	}
}

// startingVersion returns the version in the program's first record, which the alert on restarts
// counts.
func startingVersion(t *testing.T, s service, program string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = []string{"HTTP_ADDR="} // servers that do not exist: it starts, logs that, and keeps trying
	for name, value := range compose(t).Services[s.name].Environment {
		cmd.Env = append(cmd.Env, name+"="+nowhere.ReplaceAllString(value, "${1}127.0.0.1"))
	}
	output, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	var record struct{ Msg, Version string }
	require.NoError(t, json.NewDecoder(output).Decode(&record))
	require.Equal(t, "starting", record.Msg)
	return record.Version
}

// nowhere finds the host names of the composition.
var nowhere = regexp.MustCompile(`(://)(mongo|servicebus|azurite)\b`)

// copiedProgram returns the program that the last stage copies from the first.
func copiedProgram(t *testing.T, service string) string {
	t.Helper()
	for _, in := range dockerfile(t, service) {
		if rest, ok := strings.CutPrefix(in.args, "--from=build /src/"); ok && in.name == "COPY" {
			from, to, _ := strings.Cut(rest, " ")
			require.Equal(t, "/"+service, to)
			return from
		}
	}
	require.Fail(t, "the last stage copies no program")
	return ""
}

// The Dockerfiles need no BuildKit and run nothing as root.
func TestDockerfilesFollowTheRules(t *testing.T) {
	for _, s := range services {
		text := read(t, s.name+"/Dockerfile")
		for _, no := range []string{"--mount", "--link", "--chmod", "<<", "# syntax", ":latest", "--platform"} {
			require.NotContains(t, text, no, s.name)
		}
		all := dockerfile(t, s.name)
		require.Contains(t, all, instruction{"USER", "65532:65532"})
		require.Contains(t, all, instruction{"ENTRYPOINT", fmt.Sprintf("[%q]", "/"+s.name)}, "in this form SIGTERM reaches the program")
		require.Regexp(t, `(?m)^ARG VERSION=unknown\nLABEL .*org\.opencontainers\.image\.version="\$\{VERSION\}"`, text, "the image contains its version")
	}
}

// One base image everywhere: what is scanned and tested in one of the images is in all of them. No
// tag's meaning can change.
func TestDockerfilesHaveTheSameBases(t *testing.T) {
	base := regexp.MustCompile(`(?m)^FROM (\S+)`)
	all := map[string][]string{}
	for path, text := range files(t, ".", func(name string) bool { return filepath.Base(name) == "Dockerfile" }) {
		for _, m := range base.FindAllStringSubmatch(text, -1) {
			all[path] = append(all[path], m[1])
		}
	}
	require.Len(t, all, 4, "both services, the embedded servers, the example")
	for path, bases := range all {
		require.Equal(t, all["producer/Dockerfile"], bases, path)
		require.Len(t, bases, 2)
		require.Regexp(t, `^public\.ecr\.aws/docker/library/golang:1\.26\.\d+-bookworm@sha256:[0-9a-f]{64}$`, bases[0])
		require.Regexp(t, `^gcr\.io/distroless/static-debian13:nonroot@sha256:[0-9a-f]{64}$`, bases[1])
	}
}

// What must not be sent to a registry's builder is excluded. The build shows that the rest is
// there, and that go.work names no module that is not.
func TestDockerignoreExcludesWhatIsNotNeeded(t *testing.T) {
	ignored := ignoreFile(t)
	for _, file := range []string{
		".git/config", ".azure/dev/.env", ".env", "README.md", "infra/main.bicep", "bin/producer",
		"tests/go.mod", "tests/cmd/local/local_test.go", "tests/emulator/azurite/package.json", "tests/emulator/conformance/go.mod", "producer/config_test.go", "shared/envelope/testdata/insert-json.json",
	} {
		require.True(t, ignored(file), file)
	}
}
