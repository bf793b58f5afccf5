package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// notApplicable explains why a test cannot pass here whatever the server does.
var notApplicable = map[string]string{
	"TestReceiveWithDifferentWaitTime": "it wants a service that cannot deliver 1,000 messages within the 20 ms of a default receive",
}

func report(w io.Writer, all []result) error {
	count := map[string]int{}
	var b strings.Builder
	for _, r := range all {
		var outcome, note string
		switch r.outcome {
		case "PASS":
			count["passed"]++
			continue
		case "SKIP":
			outcome, note = "not applicable", "skips itself"
		default:
			if why, is := notApplicable[r.test]; is {
				outcome, note = "not applicable", why
			} else {
				outcome, note = "failed", strings.TrimSpace(strings.Join(r.failed, " ")+" "+r.detail)
			}
		}
		if r.outcome == "TIME" {
			note = "timed out; " + note
		}
		count[outcome]++
		fmt.Fprintf(&b, "%-14s %s.%s (%s): %s\n", outcome, r.suite, r.test, r.took.Round(time.Millisecond), note)
	}
	_, err := fmt.Fprintf(w, "%s\npassed %d, failed %d, not applicable %d\n", b.String(), count["passed"], count["failed"], count["not applicable"])
	return err
}
