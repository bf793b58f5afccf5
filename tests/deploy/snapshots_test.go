package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	givenParameter = regexp.MustCompile(`(?m)^param (\w+) = (?:'([^']*)'|(true|false|\d+))$`)
	usedTemplate   = regexp.MustCompile(`(?m)^using '(?:\.\./)+(?:infra/)?([\w/]+\.bicep)'$`)
	refusedWith    = regexp.MustCompile(`^// refused: (.+)\n`)
)

// The sets of parameters that the compiler evaluates in CI fit the templates. preflight refuses
// those that the templates must refuse, with the same words, and no other one.
func TestParameterSetsFitTheTemplates(t *testing.T) {
	sets, err := filepath.Glob(filepath.Join(root, "tests/deploy/snapshots/*.bicepparam"))
	require.NoError(t, err)
	rules, err := filepath.Glob(filepath.Join(root, "infra/rules/*.bicepparam"))
	require.NoError(t, err)
	require.Len(t, rules, 2)
	sets = append(sets, rules...)
	good, refused := 0, 0
	for _, set := range sets {
		data, err := os.ReadFile(set)
		require.NoError(t, err)
		text := string(data)
		path := usedTemplate.FindStringSubmatch(text)[1]
		f := template(t, path)
		given := map[string]string{}
		for _, m := range givenParameter.FindAllStringSubmatch(text, -1) {
			_, known := f.Find("param", m[1])
			require.True(t, known, "%s: %s has no parameter %s", set, path, m[1])
			given[m[1]] = m[2] + m[3]
		}
		require.Equal(t, strings.Count(text, "\nparam "), len(given), set)
		for _, p := range f.All("param") {
			require.True(t, p.HasValue || given[p.Name] != "", "%s: %s needs %s", set, path, p.Name)
		}

		var env []string
		if path == "main.bicep" { // the set alone gives what main.bicep needs
			env = []string{"MONGODB_DATABASE=", "MONGODB_COLLECTION=", "SOURCE_MONGODB_URI="}
		}
		for name, value := range parameterFile(t, deployed[path]) {
			if own, ok := given[name]; ok {
				env = append(env, variable.FindStringSubmatch(value)[1]+"="+own)
			}
		}
		r := preflight(t, t.TempDir(), env...)
		expected := refusedWith.FindStringSubmatch(text)
		switch {
		case expected == nil:
			good++
			require.Zero(t, r, set)
		case strings.HasPrefix(expected[1], "Either topic"): // azd sets them
			refused++
		default:
			refused++
			require.Equal(t, 1, r.code, set)
			require.Contains(t, r.errOut, "preflight: "+expected[1], set)
		}
	}
	require.GreaterOrEqual(t, good, 10)
	require.GreaterOrEqual(t, refused, 10)
}

// The script fails on a warning, on a file that bicep would format, and on a set of parameters that
// should be refused and is not.
func TestTheBicepScriptFailsOnCompilerFindings(t *testing.T) {
	t.Parallel()
	const snapshot = `snapshot) f=${2%.bicepparam}; if grep -q '^// refused' $2; then sed -n 's|^// refused: ||p' $2; exit 1; fi; echo '{}' >$f.snapshot.json ;;`
	for name, c := range map[string]struct {
		bicep string
		code  int
		want  string
	}{
		"all is well":            {`build|lint) ;; format) cat "$2" ;; ` + snapshot, 0, "sets of parameters"},
		"a warning":              {`build) echo 'Warning BCP329: x' >&2 ;; lint) ;; format) cat "$2" ;; ` + snapshot, 1, "BCP329"},
		"a finding":              {`build) ;; lint) echo 'Warning no-unused-vars' ;; format) cat "$2" ;; ` + snapshot, 1, "no-unused-vars"},
		"another form":           {`build|lint) ;; format) echo x ;; ` + snapshot, 1, "bicep format changes it"},
		"nothing is refused":     {`build|lint) ;; format) cat "$2" ;; snapshot) echo '{}' >${2%.bicepparam}.snapshot.json ;;`, 1, "is not refused"},
		"everything is refused":  {`build|lint) ;; format) cat "$2" ;; snapshot) exit 1 ;;`, 1, "is not evaluated"},
		"refused for other ends": {`build|lint) ;; format) cat "$2" ;; snapshot) if grep -q '^// refused' $2; then echo other; exit 1; fi; echo '{}' >${2%.bicepparam}.snapshot.json ;;`, 1, "with other words"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			standIn(t, dir, "bicep", "case $1 in "+c.bicep+" esac")
			r := run(t, dir, nil, "bash", "scripts/bicep.sh", filepath.Join(dir, "kept"))
			require.Equal(t, c.code, r.code, r.errOut)
			require.Contains(t, r.out+r.errOut, c.want)
			left, err := filepath.Glob(filepath.Join(root, "tests/deploy/snapshots/*.json"))
			require.NoError(t, err)
			require.Empty(t, left, "nothing is left in the repository")
		})
	}
	r := run(t, "", []string{"PATH=/usr/bin:/bin", "HOME=" + t.TempDir(), "REQUIRE_BICEP=1"}, "bash", "scripts/bicep.sh")
	require.NotZero(t, r.code, r.out)
}

// CI has a compiler that knows the templates' API versions, and shows how a pull request changes
// the evaluated deployments.
func TestTheWorkflowHasTheCompiler(t *testing.T) {
	workflow := read(t, ".github/workflows/ci.yml")
	require.Equal(t, 2, strings.Count(workflow, "az bicep install --version v0.49.2"))
	require.Contains(t, workflow, `REQUIRE_BICEP: "1"`)
	require.Contains(t, workflow, "scripts/bicep.sh")
}
