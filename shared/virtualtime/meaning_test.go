package virtualtime_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// run is synctest.Test, or ours.
type run func(t *testing.T, f func(t *testing.T))

// meant are tests that say and do the same with either.
var meant = map[string]func(t *testing.T, run run){
	"Success": func(t *testing.T, run run) {
		run(t, func(t *testing.T) {
			t.Log("in", t.Name(), time.Now())
			time.Sleep(time.Hour)
			helper(t)
		})
		t.Log("after")
	},
	"Fatal": func(t *testing.T, run run) {
		defer t.Log("deferred outside")
		t.Cleanup(func() { t.Log("cleaned up outside") })
		run(t, func(t *testing.T) {
			defer t.Log("deferred")
			t.Cleanup(func() { t.Log("cleaned up") })
			t.Fatal("stop")
		})
		t.Log("after")
	},
	"Error": func(t *testing.T, run run) {
		run(t, func(t *testing.T) {
			go func() { t.Error("wrong") }()
			synctest.Wait()
			t.Log("goes on", t.Failed())
		})
		t.Log("after")
	},
	"Skip": func(t *testing.T, run run) {
		run(t, func(t *testing.T) { t.Skip("not today") })
		t.Log("after", t.Skipped())
	},
	"FailNowOutside": func(outer *testing.T, run run) {
		run(outer, func(*testing.T) { outer.FailNow() })
		outer.Log("after")
	},
	"SkipNowOutside": func(outer *testing.T, run run) {
		run(outer, func(*testing.T) { outer.SkipNow() })
		outer.Log("after")
	},
	"Panic": func(t *testing.T, run run) {
		t.Log("before")
		run(t, func(*testing.T) { panic("boom") })
	},
	"PanicElsewhere": func(t *testing.T, run run) {
		run(t, func(*testing.T) {
			go panic("boom")
			synctest.Wait()
		})
	},
	"Cleanup": func(t *testing.T, run run) {
		run(t, func(t *testing.T) {
			t.Cleanup(func() { t.Log("first", t.Context().Err()) })
			t.Cleanup(func() { t.FailNow() })
			t.Cleanup(func() { t.Log("last", time.Now()) })
			t.Log(t.Context().Err())
		})
		t.Log("after")
	},
	"InCleanup": func(t *testing.T, run run) {
		t.Cleanup(func() { run(t, func(t *testing.T) { t.Log("too late") }) })
	},
	"Subtests": func(t *testing.T, run run) {
		for n, name := range []string{"a", "b", "a"} {
			t.Run(name, func(t *testing.T) {
				if n == 0 { // only one: the order of several is anyone's
					t.Parallel()
				}
				run(t, func(t *testing.T) {
					if strings.HasSuffix(t.Name(), "b") {
						t.Error("not b")
					}
				})
			})
		}
	},
	"SubtestInside": func(t *testing.T, run run) {
		run(t, func(t *testing.T) { t.Run("inner", func(*testing.T) {}) })
	},
	"ParallelInside": func(t *testing.T, run run) {
		run(t, func(t *testing.T) { t.Parallel() })
	},
	"TempDir": func(t *testing.T, run run) {
		var dir string
		run(t, func(t *testing.T) {
			dir = t.TempDir()
			t.Setenv("VIRTUALTIME", "set")
			t.Log(filepath.Base(filepath.Dir(dir)), filepath.Base(dir))
		})
		_, err := os.Stat(dir)
		t.Log(os.IsNotExist(err), os.Getenv("VIRTUALTIME"))
	},
}

func helper(t *testing.T) {
	t.Helper()
	t.Log("helped")
}

// meanings are those tests, with plain synctest and with ours, for a child.
func meanings() (tests []testing.InternalTest) {
	ours := func(t *testing.T, f func(t *testing.T)) { virtualtime.Test(t, f) }
	for name, f := range meant {
		tests = append(tests,
			testing.InternalTest{Name: "TestPlain" + name, F: func(t *testing.T) { f(t, synctest.Test) }},
			testing.InternalTest{Name: "TestWatched" + name, F: func(t *testing.T) { f(t, ours) }})
	}
	return tests
}

// passing are those of them that pass; the others fail, or end the process.
var passing = []string{"Success", "Skip", "TempDir"}

var accidental = regexp.MustCompile(`\(\d+\.\d\ds\)|(TempDir)\d+|(?s)\n\ngoroutine \d+ \[running.*`)

// Everything else that a test does and prints is as with synctest.Test: its end, its log, its
// lines, its clean-up.
func TestItMeansWhatSynctestMeans(t *testing.T) {
	t.Parallel()
	for name := range meant {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plain, want := inChild(t, "TestPlain"+name+"$", time.Hour)
			ours, passed := inChild(t, "TestWatched"+name+"$", time.Hour)
			require.Equal(t, slices.Contains(passing, name), want, plain)
			require.Equal(t, want, passed, ours)
			plain, ours = accidental.ReplaceAllString(plain, "$1"), accidental.ReplaceAllString(ours, "$1")
			require.Contains(t, plain, "TestPlain"+name)
			require.Equal(t, strings.ReplaceAll(plain, "TestPlain", "TestWatched"), ours)
		})
	}
}
