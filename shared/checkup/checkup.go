// Package checkup is the report of a service's doctor: one finding for each check, with the problem
// and its remedy.
package checkup

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/sluice-cdc/sluice/shared/terminal"
)

// Finding is the result of one check.
type Finding struct {
	Check string `json:"check"`
	OK    bool   `json:"ok"`
	// The finding, for people.
	Says string `json:"says"`
	// The remedy, if it is a problem.
	Mend string `json:"mend,omitempty"`
}

// Findings are the results so far, in order. The zero value is empty and ready to use.
type Findings []Finding

// OK adds a check that found no problem.
func (f *Findings) OK(check, says string, args ...any) {
	*f = append(*f, Finding{Check: check, OK: true, Says: fmt.Sprintf(says, args...)})
}

// Problem adds a check that found a problem, with how to fix it.
func (f *Findings) Problem(check, mend, says string, args ...any) {
	*f = append(*f, Finding{Check: check, Says: fmt.Sprintf(says, args...), Mend: mend})
}

// Healthy reports that no check found a problem.
func (f Findings) Healthy() bool {
	for _, one := range f {
		if !one.OK {
			return false
		}
	}
	return true
}

// Print writes one line for each check, for people.
func (f Findings) Print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, one := range f {
		if one.OK {
			fmt.Fprintf(w, "ok\t%s\t%s\n", one.Check, terminal.Printable(one.Says))
			continue
		}
		fmt.Fprintf(w, "PROBLEM\t%s\t%s. To fix it: %s\n", one.Check, terminal.Printable(one.Says), terminal.Printable(one.Mend))
	}
	_ = w.Flush()
}
