package operate

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
)

// Finding is the result of one check.
type Finding struct {
	Check string `json:"check"`
	OK    bool   `json:"ok"`
	// Says is what was found.
	Says string `json:"says"`
	// Mend is what to do about a problem.
	Mend string `json:"mend,omitempty"`
}

// Doctor checks everything a producer needs against the services. It changes nothing that stays: its one blob is
// removed again.
func (s *Stream) Doctor(ctx context.Context) []Finding {
	var e examination
	s.examineBlob(ctx, &e)
	s.examineServiceBus(ctx, &e)
	s.examineMongo(ctx, &e)
	return e.findings
}

type examination struct{ findings []Finding }

func (e *examination) ok(check, says string, args ...any) {
	e.findings = append(e.findings, Finding{Check: check, OK: true, Says: fmt.Sprintf(says, args...)})
}

func (e *examination) problem(check, mend, says string, args ...any) {
	e.findings = append(e.findings, Finding{Check: check, Says: fmt.Sprintf(says, args...), Mend: mend})
}

// Healthy says that no check found a problem.
func Healthy(findings []Finding) bool {
	for _, f := range findings {
		if !f.OK {
			return false
		}
	}
	return true
}

// PrintFindings writes one line a check, for people.
func PrintFindings(out io.Writer, findings []Finding) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, f := range findings {
		if f.OK {
			fmt.Fprintf(w, "ok\t%s\t%s\n", f.Check, f.Says)
			continue
		}
		fmt.Fprintf(w, "PROBLEM\t%s\t%s. To mend it: %s\n", f.Check, f.Says, f.Mend)
	}
	_ = w.Flush()
}
