package console

import (
	"fmt"
	"html"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/shared/terminal"
)

// functions are what the templates call.
var functions = map[string]any{
	"count": func(n any) string { return known(n, count) },
	"ms":    func(n any) string { return known(n, func(v int64) string { return milliseconds(float64(v)) }) },
	"seconds": func(n any) string {
		return known(n, func(v int64) string { return duration(time.Duration(v) * time.Second) })
	},
	"quantile": func(v *float64) string {
		if v == nil {
			return "–"
		}
		return milliseconds(*v)
	},
	"short": func(id string) string { return terminal.Printable(terminal.Shorten(id)) },
	"text":  terminal.Printable,
	"lines": terminal.Lines,
	"path": func(text string) markup {
		return markup(strings.ReplaceAll(html.EscapeString(terminal.Printable(text)), "/", "/<wbr>"))
	},
	"clock":  func(t time.Time) string { return t.UTC().Format("15:04:05") },
	"millis": clockMillis,
	"stamp":  func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"offset": offset,
	"query":  url.QueryEscape,
	"zero":   time.Time.IsZero,
	"dead":   (*Queue).Dead,
	"some":   func(n *int64) bool { return n != nil && *n > 0 },
	"eq":     func(a, b string) bool { return a == b },
	"length": func(groups []Parked) int { return len(groups) },

	// The parser knows them only if they are here; the language has them.
	"and": true, "or": true, "not": true,
	// These depend on the page.
	"region": true, "spark": true, "rate": true, "harm": true, "pace": true,
	"percent": percent,
}

// known formats a number, or a pointer to one that is nil if it is unknown.
func known(n any, format func(int64) string) string {
	switch v := n.(type) {
	case *int64:
		if v != nil {
			return format(*v)
		}
	case int64:
		return format(v)
	}
	return "–"
}

// count writes a number with its thousands apart.
func count(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func milliseconds(v float64) string {
	switch {
	case v < 0:
		return "–"
	case v < 10 && v != float64(int64(v)):
		return fmt.Sprintf("%.1f ms", v)
	case v < 1000:
		return fmt.Sprintf("%.0f ms", v)
	case v < 120_000:
		return fmt.Sprintf("%.1f s", v/1000)
	}
	return duration(time.Duration(v) * time.Millisecond)
}

func duration(d time.Duration) string {
	switch {
	case d < 0:
		return "–"
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// offset writes the time of a run's event.
func offset(d time.Duration) string {
	if d < 0 {
		return ""
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func clockMillis(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("15:04:05.000")
}

func percent(done, total int64) int64 {
	if total <= 0 {
		return 0
	}
	return min(100, done*100/total)
}

// title returns the name of a page for the browser's tab.
func title(page, home string) string { return strings.TrimSpace(page + " · " + home + " · Sluice") }
