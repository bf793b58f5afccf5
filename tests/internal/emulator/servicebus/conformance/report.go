package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// notApplicable says why a test cannot pass here whatever the server does, by name; a name that
// ends in "/" also covers subtests.
var notApplicable = map[string]string{
	"TestReceiver_UnauthorizedCreds": "its last part signs in to Entra ID over the internet; the other parts pass",
	"TestClientUnauthorizedCreds":    "its last part signs in to Entra ID over the internet; the other parts pass",
}

// excused reports whether everything that failed of a test is not applicable.
func excused(r result) (string, bool) {
	why, known := notApplicable[r.test]
	if !known {
		return "", false
	}
	for _, f := range r.failed {
		if !strings.Contains(strings.ToLower(f), "identity_creds") {
			return "", false
		}
	}
	return why, true
}

func report(w io.Writer, all []result) error {
	count := map[string]int{}
	var b strings.Builder
	for _, r := range all {
		outcome, note := r.outcome, ""
		switch r.outcome {
		case "PASS":
			count["passed"]++
			continue
		case "SKIP":
			outcome, note = "not applicable", "skips itself"
		default:
			if why, is := excused(r); is {
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
