// Command tally says which tests failed how often, and under which conditions, over many runs of a suite.
//
//	tally FOLDER
//
// The folder has what scripts/flakes.sh leaves there: for each run N.json, as go test -json writes it, and in runs.tsv a line
// of run, conditions, seconds of wall time, seconds of processor time, and exit code. What the failed tests printed is
// written to N-TEST.log next to them; the tables go to standard output, as Markdown. The exit code is 1 when anything
// failed, and 2 when the folder does not have what it should.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: tally FOLDER, a folder that scripts/flakes.sh has filled")
		os.Exit(2)
	}
	green, err := tally(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
		os.Exit(2)
	}
	if !green {
		os.Exit(1)
	}
}

func tally(folder string) (green bool, err error) {
	index, err := os.Open(filepath.Join(folder, "runs.tsv"))
	if err != nil {
		return false, fmt.Errorf("open the list of runs: %w", err)
	}
	defer func() { err = errors.Join(err, index.Close()) }()
	runs, err := readRuns(index)
	if err != nil {
		return false, err
	}
	tests := verdicts{}
	for _, r := range runs {
		file, err := os.Open(filepath.Join(folder, r.name+".json"))
		if err != nil {
			return false, fmt.Errorf("open the log of a run: %w", err)
		}
		logs, err := tests.read(r, file)
		if err := errors.Join(err, file.Close()); err != nil {
			return false, fmt.Errorf("read %s: %w", file.Name(), err)
		}
		for test, text := range logs {
			name := filepath.Join(folder, r.name+"-"+strings.NewReplacer("/", "_", " ", "_").Replace(test)+".log")
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				return false, fmt.Errorf("write what a test printed: %w", err)
			}
		}
	}
	report(os.Stdout, runs, tests)
	return tests.green(runs), nil
}
