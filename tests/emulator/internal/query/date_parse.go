package query

import (
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
)

func compileDateFromString(arg any) (*Expr, error) {
	const op = "$dateFromString"
	p, err := named(op, arg, []string{"dateString"}, []string{"format", "timezone", "onError", "onNull"})
	if err != nil {
		return nil, err
	}
	return p.expr(func(a args) (any, error) {
		if a.null("dateString") {
			if a.given("onNull") {
				return a["onNull"], nil
			}
			return nil, nil
		}
		if a.null("format", "timezone") {
			return nil, nil
		}
		at, err := a.zone()
		if err != nil {
			return nil, err
		}
		var t time.Time
		text, ok := a["dateString"].(string)
		if !ok {
			err = conversionFailed("$dateFromString requires that 'dateString' be a string, found: %s", TypeName(a["dateString"]))
		} else {
			var layout string
			if layout, err = a.text(op, "format", ""); err != nil {
				return nil, err
			}
			if layout == "" {
				t, err = parseDate(text, at, a.given("timezone"))
			} else {
				t, err = parseLayout(text, layout, at)
			}
		}
		if err != nil && a.given("onError") {
			return a["onError"], nil
		}
		if err != nil {
			return nil, err
		}
		return bson.NewDateTimeFromTime(t), nil
	}), nil
}

func conversionFailed(format string, args ...any) error { return mongoerr.New(241, format, args...) }

// parseDate reads the forms of ISO 8601 that a server takes without a format. Others that it takes
// are refused here.
func parseDate(text string, at *time.Location, zoned bool) (time.Time, error) {
	days, hours, dated := strings.Cut(text, "T")
	if !dated {
		days, hours, _ = strings.Cut(text, " ")
	}
	for _, day := range []string{"2006-01-02", "20060102", "2006-01"} {
		for _, hour := range []string{"", "15:04:05.999999999", "15:04", "150405"} {
			for _, offset := range []string{"", "Z07:00", "Z0700", "Z07"} {
				if (hour == "") != (hours == "") || (hour == "" && offset != "") {
					continue
				}
				t, err := time.ParseInLocation(day+"|"+hour+offset, days+"|"+hours, at)
				if err != nil {
					continue
				}
				if offset != "" && zoned {
					return t, conversionFailed("you cannot pass in a date/time string with time zone information ('%s') together with a timezone argument", text)
				}
				return t, nil
			}
		}
	}
	return time.Time{}, conversionFailed("Error parsing date string '%s' (or a form that is not supported by the embedded MongoDB)", text)
}

// parseLayout reads a date by a format of $dateToString's characters.
func parseLayout(text, layout string, at *time.Location) (time.Time, error) {
	n := map[byte]int{'Y': 1970, 'm': 1, 'd': 1}
	failed := func() (time.Time, error) {
		return time.Time{}, conversionFailed("Error parsing date string '%s' with format '%s'", text, layout)
	}
	widths := map[byte]int{'Y': 4, 'm': 2, 'd': 2, 'H': 2, 'M': 2, 'S': 2, 'L': 3, 'j': 3}
	rest := text
	for i := 0; i < len(layout); i++ {
		if layout[i] != '%' {
			if rest == "" || rest[0] != layout[i] {
				return failed()
			}
			rest = rest[1:]
			continue
		}
		if i++; i == len(layout) {
			return failed()
		}
		c := layout[i]
		switch width, numeric := widths[c]; {
		case numeric:
			digits := 0
			for digits < min(width, len(rest)) && rest[digits] >= '0' && rest[digits] <= '9' {
				digits++
			}
			v, err := strconv.Atoi(rest[:digits])
			if err != nil {
				return failed()
			}
			n[c], rest = v, rest[digits:]
		case c == 'z':
			end := strings.IndexFunc(rest, func(r rune) bool { return !strings.ContainsRune("+-:0123456789Z", r) })
			if end < 0 {
				end = len(rest)
			}
			l, err := zone(rest[:end])
			if err != nil {
				return failed()
			}
			at, rest = l, rest[end:]
		case c == 'b' || c == 'B':
			month := 0
			for m := time.January; m <= time.December; m++ {
				name := m.String()
				if c == 'b' {
					name = name[:3]
				}
				if len(rest) >= len(name) && strings.EqualFold(rest[:len(name)], name) {
					month, rest = int(m), rest[len(name):]
					break
				}
			}
			if month == 0 {
				return failed()
			}
			n['m'] = month
		case c == '%':
			if rest == "" || rest[0] != '%' {
				return failed()
			}
			rest = rest[1:]
		default:
			return time.Time{}, mongoerr.Unsupported("%%%c in the format of $dateFromString", c)
		}
	}
	if rest != "" || n['m'] > 12 || n['H'] > 23 || n['M'] > 59 || n['S'] > 60 {
		return failed()
	}
	if day, ok := n['j']; ok {
		return time.Date(n['Y'], 1, day, n['H'], n['M'], n['S'], n['L']*1e6, at), nil
	}
	return time.Date(n['Y'], time.Month(n['m']), n['d'], n['H'], n['M'], n['S'], n['L']*1e6, at), nil
}
