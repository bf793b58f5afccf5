package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// write fills a folder as scripts/flakes.sh does.
func write(t *testing.T, files map[string]string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	return folder
}

const module = `"Package":"github.com/sluice-cdc/sluice/`

const (
	passes = `{"Action":"run",` + module + `a","Test":"TestA"}
{"Action":"output",` + module + `a","Test":"TestA","Output":"fine\n"}
{"Action":"pass",` + module + `a","Test":"TestA","Elapsed":1.5}
{"Action":"pass",` + module + `a","Elapsed":2}
`
	fails = `{"Action":"output",` + module + `a","Test":"TestA","Output":"about A\n"}
{"Action":"output",` + module + `a","Test":"TestA/one","Output":"wrong\n"}
{"Action":"fail",` + module + `a","Test":"TestA/one","Elapsed":3}
{"Action":"fail",` + module + `a","Test":"TestA","Elapsed":3}
{"Action":"fail",` + module + `a","Elapsed":4}
`
	crashes = `{"Action":"run",` + module + `a","Test":"TestA"}
{"Action":"output",` + module + `a","Test":"TestA","Output":"panic: test timed out\n"}
{"Action":"output",` + module + `a","Output":"FAIL a 900s\n"}
{"Action":"fail",` + module + `a","Elapsed":900}
`
	doesNotBuild = `{"Action":"build-output","ImportPath":"github.com/sluice-cdc/sluice/b [github.com/sluice-cdc/sluice/b.test]","Output":"undefined: x\n"}
{"Action":"build-fail","ImportPath":"github.com/sluice-cdc/sluice/b [github.com/sluice-cdc/sluice/b.test]"}
{"Action":"fail",` + module + `b","Elapsed":0}
`
)

func TestWhatFailsIsCountedOnceAndByItsName(t *testing.T) {
	t.Parallel()
	folder := write(t, map[string]string{
		"runs.tsv": "1\tidle, GOMAXPROCS=1\t10\t12.5\t0\n2\tbusy, GOMAXPROCS=2\t20\t25\t1\n3\tidle, GOMAXPROCS=4\t30\t31\t1\n4\tbusy, GOMAXPROCS=1\t5\t6\t1\n",
		"1.json":   passes, "2.json": fails + passes, "3.json": crashes, "4.json": doesNotBuild,
	})
	green, err := tally(folder)
	require.NoError(t, err)
	require.False(t, green)
	for log, text := range map[string]string{
		"2-a_TestA_one.log": "wrong\n", "3-a.log": "FAIL a 900s\npanic: test timed out\n", "4-b.log": "undefined: x\n",
	} {
		got, err := os.ReadFile(filepath.Join(folder, log))
		require.NoError(t, err)
		require.Equal(t, text, string(got))
	}
	logs, err := filepath.Glob(filepath.Join(folder, "*.log"))
	require.NoError(t, err)
	require.Len(t, logs, 3)
}

func TestTheTables(t *testing.T) {
	t.Parallel()
	one, two := &run{name: "1", conditions: "idle", wall: 10, cpu: 12.5}, &run{name: "2", conditions: "busy", wall: 20, cpu: 25, code: 1}
	tests := verdicts{}
	for r, log := range map[*run]string{one: passes, two: fails} {
		_, err := tests.read(r, bytes.NewReader([]byte(log)))
		require.NoError(t, err)
	}
	var out bytes.Buffer
	report(&out, []*run{one, two}, tests)
	require.Equal(t, `| run | conditions | wall | processor | tests | failed |
|---:|---|---:|---:|---:|---:|
| 1 | idle | 10 s | 12 s | 1 | 0 |
| 2 | busy | 20 s | 25 s | 2 | 1 |

1 of 2 runs are green.

| failed | times | of | in the runs |
|---|---:|---:|---|
| a TestA/one | 1 | 1 | 2 (busy) |

| slowest test | runs | at most |
|---|---:|---:|
| a TestA/one | 1 | 3.0 s |
| a TestA | 2 | 3.0 s |
`, out.String())
}

// A run may fail without a test: then its exit code says so.
func TestGreenIsNotSaidOfARunThatFailed(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]bool{"0": true, "2": false} {
		green, err := tally(write(t, map[string]string{"runs.tsv": "1\tidle\t10\t12\t" + code + "\n", "1.json": passes}))
		require.NoError(t, err)
		require.Equal(t, want, green)
	}
}

func TestAFolderOfSomethingElseIsRefused(t *testing.T) {
	t.Parallel()
	for _, files := range []map[string]string{
		{},
		{"runs.tsv": "1 idle\n"},
		{"runs.tsv": "1\tidle\tlong\t1\t0\n"},
		{"runs.tsv": "1\tidle\t1\t1\t0\n"},
		{"runs.tsv": "1\tidle\t1\t1\t0\n", "1.json": "ok a\n"},
	} {
		_, err := tally(write(t, files))
		require.Error(t, err, files)
	}
}
