package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// report prints a table of the runs, one of what failed, and one of what takes long.
func report(w io.Writer, runs []*run, tests verdicts) {
	fmt.Fprintln(w, "| run | conditions | wall | processor | tests | failed |\n|---:|---|---:|---:|---:|---:|")
	green := 0
	for _, r := range runs {
		failed := fmt.Sprint(r.failed)
		switch {
		case r.code != 0 && r.failed == 0:
			failed = fmt.Sprintf("exit code %d", r.code)
		case r.code == 0 && r.failed == 0:
			green++
		}
		fmt.Fprintf(w, "| %s | %s | %.0f s | %.0f s | %d | %s |\n", r.name, r.conditions, r.wall, r.cpu, r.tests, failed)
	}
	fmt.Fprintf(w, "\n%d of %d runs are green.\n", green, len(runs))

	names := slices.Sorted(maps.Keys(tests))
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(len(tests[b].failures), len(tests[a].failures)) })
	for i, name := range names {
		test := tests[name]
		if len(test.failures) == 0 {
			break
		}
		if i == 0 {
			fmt.Fprintln(w, "\n| failed | times | of | in the runs |\n|---|---:|---:|---|")
		}
		var when []string
		for _, r := range test.failures {
			when = append(when, fmt.Sprintf("%s (%s)", r.name, r.conditions))
		}
		fmt.Fprintf(w, "| %s | %d | %d | %s |\n", name, len(test.failures), test.runs, strings.Join(when, ", "))
	}

	names = slices.DeleteFunc(names, func(name string) bool { return !strings.Contains(name, " ") }) // packages
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(tests[b].slowest, tests[a].slowest) })
	fmt.Fprintln(w, "\n| slowest test | runs | at most |\n|---|---:|---:|")
	for _, name := range names[:min(10, len(names))] {
		fmt.Fprintf(w, "| %s | %d | %.1f s |\n", name, tests[name].runs, tests[name].slowest)
	}
}
