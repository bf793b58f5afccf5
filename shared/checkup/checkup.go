// Package checkup is the report of a service's doctor: one finding for each check, with the problem
// and its remedy.
package checkup

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/sluice-cdc/sluice/shared/terminal"
)

// Finding is the result of one check.
type Finding struct {
	Check string `json:"check"`
	OK    bool   `json:"ok"`
	// The finding, for people.
	Message string `json:"message"`
	// The remedy, if it is a problem.
	Remedy string `json:"remedy,omitempty"`
}

// Findings are the results so far, in order. The zero value is empty and ready to use.
type Findings []Finding

// OK adds a check that found no problem.
func (f *Findings) OK(check, message string, args ...any) {
	*f = append(*f, Finding{Check: check, OK: true, Message: fmt.Sprintf(message, args...)})
}

// Problem adds a check that found a problem, with how to fix it.
func (f *Findings) Problem(check, remedy, message string, args ...any) {
	*f = append(*f, Finding{Check: check, Message: fmt.Sprintf(message, args...), Remedy: remedy})
}

// Healthy reports that no check found a problem.
func (f Findings) Healthy() bool {
	return !slices.ContainsFunc(f, func(one Finding) bool { return !one.OK })
}

// Print writes one line for each check, for people.
func (f Findings) Print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, one := range f {
		if one.OK {
			fmt.Fprintf(w, "ok\t%s\t%s\n", one.Check, terminal.Printable(one.Message))
			continue
		}
		fmt.Fprintf(w, "PROBLEM\t%s\t%s. To fix it: %s\n", one.Check, terminal.Printable(one.Message), terminal.Printable(one.Remedy))
	}
	_ = w.Flush()
}
