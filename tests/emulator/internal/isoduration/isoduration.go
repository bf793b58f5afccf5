// Package isoduration reads the ISO 8601 durations of Service Bus: days to seconds, since years
// and months have no fixed length.
package isoduration

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var pattern = regexp.MustCompile(`^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?$`)

// Parse reads a duration. A duration of more than 250 years, which clients send for "no limit", is
// read as 0.
func Parse(s string) (time.Duration, error) {
	m := pattern.FindStringSubmatch(s)
	if m == nil || m[1]+m[2]+m[3]+m[4] == "" {
		return 0, fmt.Errorf("%q is not an ISO 8601 duration of days, hours, minutes and seconds", s)
	}
	var total float64
	for i, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		if m[i+1] == "" {
			continue
		}
		n, err := strconv.ParseFloat(m[i+1], 64)
		if err != nil {
			return 0, fmt.Errorf("parse duration %q: %w", s, err)
		}
		total += n * float64(unit)
	}
	const year = 365 * 24 * float64(time.Hour)
	if total > 250*year {
		return 0, nil
	}
	return time.Duration(total), nil
}

// Format returns the inverse of Parse; 0 is the largest duration .NET knows.
func Format(d time.Duration) string {
	if d <= 0 {
		return "P10675199DT2H48M5.4775807S"
	}
	var b strings.Builder
	b.WriteByte('P')
	if days := d / (24 * time.Hour); days > 0 {
		fmt.Fprintf(&b, "%dD", days)
		d %= 24 * time.Hour
	}
	if d == 0 {
		return b.String()
	}
	b.WriteByte('T')
	if n := d / time.Hour; n > 0 {
		fmt.Fprintf(&b, "%dH", n)
	}
	if n := d % time.Hour / time.Minute; n > 0 {
		fmt.Fprintf(&b, "%dM", n)
	}
	if n := d % time.Minute; n > 0 {
		b.WriteString(strconv.FormatFloat(n.Seconds(), 'f', -1, 64))
		b.WriteByte('S')
	}
	return b.String()
}
