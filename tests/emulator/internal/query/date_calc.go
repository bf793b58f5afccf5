package query

import (
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// units are the units of time, with the length of each whose length does not vary, else 0.
var units = map[string]time.Duration{
	"year": 0, "quarter": 0, "month": 0, "week": 0, "day": 0, "hour": time.Hour, "minute": time.Minute, "second": time.Second, "millisecond": time.Millisecond,
}

func (a args) unit(op string) (string, error) {
	name, err := a.text(op, "unit", "")
	if err != nil {
		return "", err
	}
	if _, known := units[name]; !known {
		return "", mongoerr.New(mongoerr.FailedToParse, "unknown time unit value: %s", name)
	}
	return name, nil
}

func compileDateAdd(op string, arg any, sign int64) (*Expr, error) {
	p, err := named(op, arg, []string{"startDate", "unit", "amount"}, []string{"timezone"})
	if err != nil {
		return nil, err
	}
	return p.expr(func(a args) (any, error) {
		if a.null("unit", "amount") {
			return nil, nil
		}
		t, null, err := a.date(op, "startDate")
		if null || err != nil {
			return nil, err
		}
		unit, err := a.unit(op)
		if err != nil {
			return nil, err
		}
		n, err := a.int(op, "amount", 0)
		if err != nil {
			return nil, err
		}
		return bson.NewDateTimeFromTime(addUnits(t, unit, int(n*sign))), nil
	}), nil
}

// addUnits adds n units; a day that the month does not have becomes its last.
func addUnits(t time.Time, unit string, n int) time.Time {
	switch unit {
	case "year":
		return addMonths(t, 12*n)
	case "quarter":
		return addMonths(t, 3*n)
	case "month":
		return addMonths(t, n)
	case "week":
		return t.AddDate(0, 0, 7*n)
	case "day":
		return t.AddDate(0, 0, n)
	}
	return t.Add(time.Duration(n) * units[unit])
}

func addMonths(t time.Time, n int) time.Time {
	first := time.Date(t.Year(), t.Month()+time.Month(n), 1, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), t.Location())
	last := time.Date(first.Year(), first.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
	return first.AddDate(0, 0, min(t.Day(), last)-1)
}

// dayNumber counts the days of the calendar since 1970, whatever the zone.
func dayNumber(t time.Time) int64 {
	return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC).Unix() / 86400
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// weekday reads a day on which weeks begin.
func (a args) weekday(op string) (time.Weekday, error) {
	name, err := a.text(op, "startOfWeek", "sunday")
	if err != nil {
		return 0, err
	}
	for day := range time.Weekday(7) {
		full := strings.ToLower(day.String())
		if short := full[:3]; strings.EqualFold(name, full) || strings.EqualFold(name, short) {
			return day, nil
		}
	}
	return 0, mongoerr.New(mongoerr.FailedToParse, "%s: unknown day of week value: %s", op, name)
}

// weekNumber counts weeks since the first that begins in 1970 or after, on the day given.
func weekNumber(t time.Time, begins time.Weekday) int64 {
	const thursday = 4 // 1970-01-01
	return floorDiv(dayNumber(t)-int64((int(begins)-thursday+7)%7), 7)
}

func months(t time.Time) int64 { return int64(t.Year())*12 + int64(t.Month()) - 1 }

func compileDateDiff(arg any) (*Expr, error) {
	const op = "$dateDiff"
	p, err := named(op, arg, []string{"startDate", "endDate", "unit"}, []string{"timezone", "startOfWeek"})
	if err != nil {
		return nil, err
	}
	return p.expr(func(a args) (any, error) {
		if a.null("unit", "startOfWeek") {
			return nil, nil
		}
		from, null, err := a.date(op, "startDate")
		if null || err != nil {
			return nil, err
		}
		to, null, err := a.date(op, "endDate")
		if null || err != nil {
			return nil, err
		}
		unit, err := a.unit(op)
		if err != nil {
			return nil, err
		}
		begins, err := a.weekday(op)
		if err != nil {
			return nil, err
		}
		return boundaries(from, to, unit, begins), nil
	}), nil
}

// boundaries counts how often a unit of time begins after from and until to.
func boundaries(from, to time.Time, unit string, begins time.Weekday) int64 {
	switch unit {
	case "year":
		return int64(to.Year() - from.Year())
	case "quarter":
		return floorDiv(months(to), 3) - floorDiv(months(from), 3)
	case "month":
		return months(to) - months(from)
	case "week":
		return weekNumber(to, begins) - weekNumber(from, begins)
	case "day":
		return dayNumber(to) - dayNumber(from)
	}
	ms := units[unit].Milliseconds()
	local := func(t time.Time) int64 { // minutes and hours begin where the zone has them begin
		_, offset := t.Zone()
		return t.UnixMilli() + int64(offset)*1000
	}
	return floorDiv(local(to), ms) - floorDiv(local(from), ms)
}

func compileDateTrunc(arg any) (*Expr, error) {
	const op = "$dateTrunc"
	p, err := named(op, arg, []string{"date", "unit"}, []string{"binSize", "timezone", "startOfWeek"})
	if err != nil {
		return nil, err
	}
	return p.expr(func(a args) (any, error) {
		if a.null("unit", "binSize", "startOfWeek") {
			return nil, nil
		}
		t, null, err := a.date(op, "date")
		if null || err != nil {
			return nil, err
		}
		unit, err := a.unit(op)
		if err != nil {
			return nil, err
		}
		begins, err := a.weekday(op)
		if err != nil {
			return nil, err
		}
		size, err := a.int(op, "binSize", 1)
		if err != nil {
			return nil, err
		}
		if size < 1 {
			return nil, mongoerr.New(5439018, "$dateTrunc requires 'binSize' to be greater than 0, but got value %d", size)
		}
		return bson.NewDateTimeFromTime(truncate(t, unit, size, begins)), nil
	}), nil
}

// truncate gives the beginning of the bin that t is in; bins are counted from 2000-01-01.
func truncate(t time.Time, unit string, size int64, begins time.Weekday) time.Time {
	reference := time.Date(2000, 1, 1, 0, 0, 0, 0, t.Location())
	if unit == "week" {
		for reference.Weekday() != begins {
			reference = reference.AddDate(0, 0, 1)
		}
	}
	if length := units[unit]; length > 0 {
		bin := length.Milliseconds() * size
		return reference.Add(time.Duration(floorDiv(t.UnixMilli()-reference.UnixMilli(), bin)*bin) * time.Millisecond)
	}
	n := boundaries(reference, t, unit, begins)
	return addUnits(reference, unit, int(floorDiv(n, size)*size))
}

func compileDateFromParts(arg any) (*Expr, error) {
	const op = "$dateFromParts"
	d, _ := arg.(bson.D)
	required, more := []string{"year"}, []string{"month", "day"}
	if _, iso := value.Get(d, "isoWeekYear"); iso {
		required, more = []string{"isoWeekYear"}, []string{"isoWeek", "isoDayOfWeek"}
	}
	p, err := named(op, arg, required, append(more, "hour", "minute", "second", "millisecond", "timezone"))
	if err != nil {
		return nil, err
	}
	return p.expr(func(a args) (any, error) {
		if a.null("year", "isoWeekYear", "month", "day", "isoWeek", "isoDayOfWeek", "hour", "minute", "second", "millisecond", "timezone") {
			return nil, nil
		}
		at, err := a.zone()
		if err != nil {
			return nil, err
		}
		var n [7]int
		for i, name := range append(append([]string{}, append(required, more...)...), "hour", "minute", "second", "millisecond") {
			absent := int64(0)
			if i == 1 || i == 2 {
				absent = 1
			}
			got, err := a.int(op, name, absent)
			if err != nil {
				return nil, mongoerr.New(40515, "'%s' must evaluate to an integer, found %s", name, TypeName(a[name]))
			}
			n[i] = int(got)
		}
		day := func(year int, month time.Month, day int) time.Time {
			return time.Date(year, month, day, n[3], n[4], n[5], n[6]*1e6, at)
		}
		if required[0] == "year" {
			return bson.NewDateTimeFromTime(day(n[0], time.Month(n[1]), n[2])), nil
		}
		fourth := time.Date(n[0], 1, 4, 0, 0, 0, 0, time.UTC) // always in the first week
		return bson.NewDateTimeFromTime(day(n[0], 1, 4-int(isoDay(fourth))+1+7*(n[1]-1)+n[2]-1)), nil
	}), nil
}
