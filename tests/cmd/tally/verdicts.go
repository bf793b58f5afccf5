package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// run is one run of the suite.
type run struct {
	name       string
	conditions string
	wall, cpu  float64 // seconds
	code       int
	tests      int // that came to a verdict
	failed     int
}

func readRuns(r io.Reader) (runs []*run, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		field := strings.Split(lines.Text(), "\t")
		if len(field) != 5 {
			return nil, fmt.Errorf("the list of runs has %d fields in a line, and needs 5: %q", len(field), lines.Text())
		}
		wall, err1 := strconv.ParseFloat(field[2], 64)
		cpu, err2 := strconv.ParseFloat(field[3], 64)
		code, err3 := strconv.Atoi(field[4])
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, fmt.Errorf("read a line of the list of runs: %w", err)
		}
		runs = append(runs, &run{name: field[0], conditions: field[1], wall: wall, cpu: cpu, code: code})
	}
	return runs, lines.Err()
}

// verdict is how a test, or a package as a whole, fared over all runs.
type verdict struct {
	runs     int
	failures []*run
	slowest  float64 // seconds
}

// verdicts is every test by its package and name; a package by its path alone.
type verdicts map[string]*verdict

// event is a line of go test -json.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// read takes what one run did, and returns what the failed tests printed. A test that runs in both halves of the suite counts
// in each. A test whose subtests failed is not counted for them, nor a package for its tests. What fails as a package has not
// been built, has crashed, or was ended: what it and its unfinished tests printed says which.
func (v verdicts) read(r *run, log io.Reader) (failed map[string]string, err error) {
	failed = map[string]string{}
	printed := map[string]*strings.Builder{} // by those that have no verdict yet
	within := map[string]bool{}              // what failed in a package that has no verdict yet
	fail := func(test, said string) {
		for name := range within {
			if strings.HasPrefix(name, test+" ") || strings.HasPrefix(name, test+"/") {
				return
			}
		}
		within[test] = true
		v.of(test).failures = append(v.of(test).failures, r)
		failed[test] += said
		r.failed++
	}
	lines := json.NewDecoder(log)
	for {
		var e event
		if err := lines.Decode(&e); errors.Is(err, io.EOF) {
			return failed, nil
		} else if err != nil {
			return nil, err
		}
		pkg := short(e.Package + e.ImportPath)
		test := pkg
		if e.Test != "" {
			test += " " + e.Test
		}
		switch e.Action {
		case "output", "build-output":
			if printed[test] == nil {
				printed[test] = &strings.Builder{}
			}
			printed[test].WriteString(e.Output)
		case "pass", "fail", "skip":
			v.of(test).runs++
			v.of(test).slowest = max(v.of(test).slowest, e.Elapsed)
			if e.Test != "" {
				r.tests++
			}
			if e.Action == "fail" {
				fail(test, said(printed, test))
			}
			delete(printed, test)
			if e.Test == "" {
				maps.DeleteFunc(within, func(name string, _ bool) bool { return name == pkg || strings.HasPrefix(name, pkg+" ") })
			}
		}
	}
}

// said is what a test printed, or a package and its unfinished tests.
func said(printed map[string]*strings.Builder, test string) (text string) {
	for _, name := range slices.Sorted(maps.Keys(printed)) {
		if name == test || strings.HasPrefix(name, test+" ") {
			text += printed[name].String()
		}
	}
	return text
}

func (v verdicts) of(test string) *verdict {
	if v[test] == nil {
		v[test] = &verdict{}
	}
	return v[test]
}

// green says whether nothing failed: no test, and no run for a reason of its own.
func (v verdicts) green(runs []*run) bool {
	for _, r := range runs {
		if r.code != 0 || r.failed > 0 {
			return false
		}
	}
	return true
}

// short is a package's path in the repository.
func short(path string) string {
	path, _, _ = strings.Cut(path, " ") // a test's own build is "PACKAGE [PACKAGE.test]"
	return strings.TrimPrefix(path, "github.com/sluice-cdc/sluice/")
}
