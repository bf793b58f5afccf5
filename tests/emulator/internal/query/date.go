package query

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// dateOf reads what the date expressions take for a date.
func dateOf(op string, v any) (time.Time, error) {
	switch t := v.(type) {
	case bson.DateTime:
		return t.Time().UTC(), nil
	case bson.Timestamp:
		return time.Unix(int64(t.T), 0).UTC(), nil
	case bson.ObjectID:
		return t.Timestamp().UTC(), nil
	}
	return time.Time{}, mongoerr.New(16006, "%s: can't convert from BSON type %s to Date", op, TypeName(v))
}

// zone reads a time zone: a name of the Olson database, or an offset such as +02:00.
func zone(v any) (*time.Location, error) {
	name, ok := v.(string)
	if !ok {
		return nil, mongoerr.New(40517, "timezone must evaluate to a string, found %s", TypeName(v))
	}
	if name == "UTC" || name == "GMT" || name == "Z" {
		return time.UTC, nil
	}
	if len(name) > 2 && (name[0] == '+' || name[0] == '-') {
		digits := strings.Replace(name[1:], ":", "", 1)
		n, err := strconv.Atoi(digits)
		if err != nil || (len(digits) != 2 && len(digits) != 4) {
			return nil, mongoerr.New(40485, "unrecognized time zone identifier: %q", name)
		}
		if len(digits) == 2 {
			n *= 100
		}
		seconds := (n/100*60 + n%100) * 60
		if name[0] == '-' {
			seconds = -seconds
		}
		return time.FixedZone(name, seconds), nil
	}
	l, err := time.LoadLocation(name)
	if err != nil || name == "" || name == "Local" {
		return nil, mongoerr.New(40485, "unrecognized time zone identifier: %q", name)
	}
	return l, nil
}

// dateParts are the operators that read one number off a date.
var dateParts = map[string]func(t time.Time) any{
	"$year":        func(t time.Time) any { return int32(t.Year()) },
	"$month":       func(t time.Time) any { return int32(t.Month()) },
	"$dayOfMonth":  func(t time.Time) any { return int32(t.Day()) },
	"$hour":        func(t time.Time) any { return int32(t.Hour()) },
	"$minute":      func(t time.Time) any { return int32(t.Minute()) },
	"$second":      func(t time.Time) any { return int32(t.Second()) },
	"$millisecond": func(t time.Time) any { return int32(t.Nanosecond() / 1e6) },
	"$dayOfWeek":   func(t time.Time) any { return int32(t.Weekday()) + 1 },
	"$dayOfYear":   func(t time.Time) any { return int32(t.YearDay()) },
	"$week":        func(t time.Time) any { return int32(week(t)) },
	"$isoWeek":     func(t time.Time) any { _, w := t.ISOWeek(); return int32(w) },
	"$isoWeekYear": func(t time.Time) any { y, _ := t.ISOWeek(); return int64(y) },
	"$isoDayOfWeek": func(t time.Time) any {
		return isoDay(t)
	},
}

// week counts weeks that begin on Sundays; the days before the first are week 0.
func week(t time.Time) int { return (t.YearDay() + 6 - int(t.Weekday())) / 7 }

func isoDay(t time.Time) int32 { return (int32(t.Weekday())+6)%7 + 1 }

func init() {
	for name, part := range dateParts {
		special[name] = func(arg any) (*Expr, error) {
			return onDate(name, arg, func(t time.Time) (any, error) { return part(t), nil })
		}
	}
	special["$dateToString"] = compileDateToString
	special["$dateToParts"] = compileDateToParts
	special["$dateAdd"] = func(arg any) (*Expr, error) { return compileDateAdd("$dateAdd", arg, 1) }
	special["$dateSubtract"] = func(arg any) (*Expr, error) { return compileDateAdd("$dateSubtract", arg, -1) }
	special["$dateDiff"] = compileDateDiff
	special["$dateTrunc"] = compileDateTrunc
	special["$dateFromParts"] = compileDateFromParts
	special["$dateFromString"] = compileDateFromString
}

// onDate compiles an operator on one date, alone or as {date, timezone}. Null, for either, gives
// null.
func onDate(op string, arg any, f func(t time.Time) (any, error)) (*Expr, error) {
	if list, ok := arg.(bson.A); ok && len(list) == 1 {
		arg = list[0]
	}
	d, _ := arg.(bson.D)
	if _, has := value.Get(d, "date"); !has {
		arg = bson.D{{Key: "date", Value: arg}}
	}
	p, err := named(op, arg, []string{"date"}, []string{"timezone"})
	if err != nil {
		return nil, err
	}
	return p.expr(func(a args) (any, error) {
		t, null, err := a.date(op, "date")
		if null || err != nil {
			return nil, err
		}
		return f(t)
	}), nil
}

// params are the named arguments of an operator; args are their values for one document.
type (
	params map[string]*Expr
	args   map[string]any
)

// expr evaluates every argument before f; those that were not given are missing.
func (p params) expr(f func(a args) (any, error)) *Expr {
	return p.exprIn(func(a args, _ *Env) (any, error) { return f(a) })
}

// exprIn is like expr for what depends on the server's version.
func (p params) exprIn(f func(a args, env *Env) (any, error)) *Expr {
	return &Expr{func(s *scope) (any, error) {
		a := args{}
		for name, e := range p {
			v, err := e.eval(s)
			if err != nil {
				return nil, err
			}
			a[name] = v
		}
		return f(a, s.env)
	}}
}

func (a args) given(name string) bool { _, ok := a[name]; return ok }

// null reports whether one of the given arguments has no value.
func (a args) null(names ...string) bool {
	for _, n := range names {
		if v, ok := a[n]; ok && nullish(v) {
			return true
		}
	}
	return false
}

// date returns a date in the time zone that goes with it.
func (a args) date(op, name string) (t time.Time, null bool, err error) {
	if a.null(name, "timezone") {
		return t, true, nil
	}
	if t, err = dateOf(op, a[name]); err != nil {
		return t, false, err
	}
	at, err := a.zone()
	if err != nil {
		return t, false, err
	}
	return t.In(at), false, nil
}

func (a args) zone() (*time.Location, error) {
	if !a.given("timezone") {
		return time.UTC, nil
	}
	return zone(a["timezone"])
}

func (a args) text(op, name, absent string) (string, error) {
	if !a.given(name) {
		return absent, nil
	}
	s, ok := a[name].(string)
	if !ok {
		return "", mongoerr.New(mongoerr.FailedToParse, "%s requires '%s' to be a string, found: %s", op, name, TypeName(a[name]))
	}
	return s, nil
}

func (a args) int(op, name string, absent int64) (int64, error) {
	if !a.given(name) {
		return absent, nil
	}
	n, ok := value.AsInt(a[name])
	if !ok {
		return 0, mongoerr.New(5166405, "%s expects integer '%s'", op, name)
	}
	return n, nil
}

func compileDateToString(arg any) (*Expr, error) {
	p, err := named("$dateToString", arg, []string{"date"}, []string{"format", "timezone", "onNull"})
	if err != nil {
		return nil, err
	}
	return p.exprIn(func(a args, env *Env) (any, error) {
		if a.null("date") && a.given("onNull") {
			return a["onNull"], nil
		}
		if a.null("format") {
			return nil, nil
		}
		t, null, err := a.date("$dateToString", "date")
		if null || err != nil {
			return nil, err
		}
		layout := "%Y-%m-%dT%H:%M:%S.%L"
		if t.Location() == time.UTC || env.before(7, 0) {
			layout += "Z"
		}
		if layout, err = a.text("$dateToString", "format", layout); err != nil {
			return nil, err
		}
		return formatDate(t, layout)
	}), nil
}

func formatDate(t time.Time, layout string) (any, error) {
	var b strings.Builder
	for i := 0; i < len(layout); i++ {
		if layout[i] != '%' {
			b.WriteByte(layout[i])
			continue
		}
		if i++; i == len(layout) {
			return nil, mongoerr.New(18535, "Unmatched '%%' at end of format string")
		}
		_, offset := t.Zone()
		isoYear, isoWeek := t.ISOWeek()
		switch layout[i] {
		case 'Y':
			fmt.Fprintf(&b, "%04d", t.Year())
		case 'm':
			fmt.Fprintf(&b, "%02d", t.Month())
		case 'd':
			fmt.Fprintf(&b, "%02d", t.Day())
		case 'H':
			fmt.Fprintf(&b, "%02d", t.Hour())
		case 'M':
			fmt.Fprintf(&b, "%02d", t.Minute())
		case 'S':
			fmt.Fprintf(&b, "%02d", t.Second())
		case 'L':
			fmt.Fprintf(&b, "%03d", t.Nanosecond()/1e6)
		case 'j':
			fmt.Fprintf(&b, "%03d", t.YearDay())
		case 'w':
			fmt.Fprintf(&b, "%d", int(t.Weekday())+1)
		case 'U':
			fmt.Fprintf(&b, "%02d", week(t))
		case 'V':
			fmt.Fprintf(&b, "%02d", isoWeek)
		case 'G':
			fmt.Fprintf(&b, "%04d", isoYear)
		case 'u':
			fmt.Fprintf(&b, "%d", isoDay(t))
		case 'b':
			b.WriteString(t.Format("Jan"))
		case 'B':
			b.WriteString(t.Format("January"))
		case 'z':
			b.WriteString(t.Format("-0700"))
		case 'Z':
			fmt.Fprintf(&b, "%d", offset/60)
		case '%':
			b.WriteByte('%')
		default:
			return nil, mongoerr.New(18536, "Invalid format character '%%%c' in format string", layout[i])
		}
	}
	return b.String(), nil
}

func compileDateToParts(arg any) (*Expr, error) {
	p, err := named("$dateToParts", arg, []string{"date"}, []string{"timezone", "iso8601"})
	if err != nil {
		return nil, err
	}
	return p.expr(func(a args) (any, error) {
		t, null, err := a.date("$dateToParts", "date")
		if null || err != nil {
			return nil, err
		}
		parts := bson.D{{Key: "year", Value: int32(t.Year())}, {Key: "month", Value: int32(t.Month())}, {Key: "day", Value: int32(t.Day())}}
		if truthy(a["iso8601"]) {
			y, w := t.ISOWeek()
			parts = bson.D{{Key: "isoWeekYear", Value: int32(y)}, {Key: "isoWeek", Value: int32(w)}, {Key: "isoDayOfWeek", Value: isoDay(t)}}
		}
		return append(parts, bson.D{
			{Key: "hour", Value: int32(t.Hour())},
			{Key: "minute", Value: int32(t.Minute())},
			{Key: "second", Value: int32(t.Second())},
			{Key: "millisecond", Value: int32(t.Nanosecond() / 1e6)},
		}...), nil
	}), nil
}
