// Package checkup is the report of a service's doctor: one finding for each check, with the problem
// and its remedy.
package checkup

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"text/tabwriter"
	"time"

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

// clockOff is the least difference between two clocks that is a problem: services refuse what is
// signed by a clock that is 15 minutes off, and a lock or a token may be made for five.
const clockOff = 5 * time.Minute

// FixClock is how to fix a clock.
const FixClock = "set this machine's clock (NTP): what is signed by it is refused, and tokens that it has made have expired"

// Clock returns what is wrong with this machine's clock by the Date of a service's response, which
// arrived now; empty if the clocks agree, or the response has no Date.
func Clock(header http.Header, now time.Time) (problem string) {
	date, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return ""
	}
	switch ahead := now.Sub(date).Round(time.Second); {
	case ahead >= clockOff:
		return fmt.Sprintf("this machine's clock is %s ahead of the service's", ahead)
	case ahead <= -clockOff:
		return fmt.Sprintf("this machine's clock is %s behind the service's", -ahead)
	}
	return ""
}

// longestLock is the longest lock duration that Service Bus takes.
const longestLock = 5 * time.Minute

// ClockByLock returns what is wrong with this machine's clock by a lock that Service Bus has just
// given it until a time of its own clock; empty if the lock is one that an entity may have.
func ClockByLock(until, asked time.Time) (problem string) {
	switch lasts := until.Sub(asked); {
	case lasts <= 0:
		return fmt.Sprintf("a lock ends %s before it begins: this machine's clock is ahead of Service Bus's by more than that", (-lasts).Round(time.Second))
	case lasts > longestLock+clockOff:
		return fmt.Sprintf("a lock lasts %s, longer than any can: this machine's clock is behind Service Bus's", lasts.Round(time.Second))
	}
	return ""
}
