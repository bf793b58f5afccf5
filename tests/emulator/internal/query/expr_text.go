package query

import (
	"maps"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

func init() {
	maps.Copy(operators, map[string]operator{
		"$strLenCP":     {1, 1, strLenCP},
		"$substrCP":     {3, 3, substrCP},
		"$indexOfBytes": {2, 4, func(a []any) (any, error) { return indexOf("$indexOfBytes", a, false) }},
		"$indexOfCP":    {2, 4, func(a []any) (any, error) { return indexOf("$indexOfCP", a, true) }},
		"$strcasecmp":   {2, 2, strcasecmp},
	})
	special["$trim"] = func(arg any) (*Expr, error) { return compileTrim("$trim", arg, strings.Trim, strings.TrimSpace) }
	special["$ltrim"] = func(arg any) (*Expr, error) {
		return compileTrim("$ltrim", arg, strings.TrimLeft, func(s string) string { return strings.TrimLeft(s, whitespace) })
	}
	special["$rtrim"] = func(arg any) (*Expr, error) {
		return compileTrim("$rtrim", arg, strings.TrimRight, func(s string) string { return strings.TrimRight(s, whitespace) })
	}
	special["$replaceOne"] = func(arg any) (*Expr, error) { return compileReplaceText("$replaceOne", arg, 1) }
	special["$replaceAll"] = func(arg any) (*Expr, error) { return compileReplaceText("$replaceAll", arg, -1) }
	for _, name := range []string{"$regexMatch", "$regexFind", "$regexFindAll"} {
		special[name] = func(arg any) (*Expr, error) { return compileRegexCall(name, arg) }
	}
}

const whitespace = " \t\n\v\f\r\x00\u00a0"

func strLenCP(a []any) (any, error) {
	s, ok := a[0].(string)
	if !ok {
		return nil, mongoerr.New(34471, "$strLenCP requires a string argument, found: %s", TypeName(a[0]))
	}
	return int32(utf8.RuneCountInString(s)), nil
}

func substrCP(a []any) (any, error) {
	v, err := casing(a[0], func(s string) string { return s })
	if err != nil {
		return nil, err
	}
	from, ok1 := value.AsInt(a[1])
	count, ok2 := value.AsInt(a[2])
	if !ok1 || !ok2 || from < 0 || count < 0 {
		return nil, mongoerr.New(34451, "$substrCP needs a start and a length that are not negative")
	}
	runes := []rune(v.(string))
	from = min(from, int64(len(runes)))
	return string(runes[from:min(from+count, int64(len(runes)))]), nil
}

func indexOf(op string, a []any, points bool) (any, error) {
	if nullish(a[0]) {
		return nil, nil
	}
	s, ok1 := a[0].(string)
	want, ok2 := a[1].(string)
	if !ok1 || !ok2 {
		return nil, mongoerr.New(40091, "%s requires strings, found: %s and %s", op, TypeName(a[0]), TypeName(a[1]))
	}
	runes := make([]string, 0, len(s)) // of bytes, or of code points
	for rest := s; rest != ""; {
		n := 1
		if points {
			_, n = utf8.DecodeRuneInString(rest)
		}
		runes, rest = append(runes, rest[:n]), rest[n:]
	}
	from, to := int64(0), int64(len(runes))
	for i, bound := range []*int64{&from, &to} {
		if len(a) <= 2+i {
			continue
		}
		n, ok := value.AsInt(a[2+i])
		if !ok || n < 0 {
			return nil, mongoerr.New(40096, "%s requires a nonnegative whole number as a bound, found: %v", op, a[2+i])
		}
		*bound = n
	}
	to = min(to, int64(len(runes)))
	if from > to {
		return int32(-1), nil
	}
	part := strings.Join(runes[from:to], "")
	i := strings.Index(part, want)
	if i < 0 {
		return int32(-1), nil
	}
	if points {
		i = utf8.RuneCountInString(part[:i])
	}
	return int32(from) + int32(i), nil
}

func strcasecmp(a []any) (any, error) {
	x, err := casing(a[0], upper)
	if err != nil {
		return nil, err
	}
	y, err := casing(a[1], upper)
	if err != nil {
		return nil, err
	}
	return int32(strings.Compare(x.(string), y.(string))), nil
}

func compileTrim(op string, arg any, trim func(s, cutset string) string, space func(string) string) (*Expr, error) {
	p, err := named(op, arg, []string{"input"}, []string{"chars"})
	if err != nil {
		return nil, err
	}
	return p.expr(func(a args) (any, error) {
		if a.null("input", "chars") {
			return nil, nil
		}
		s, ok := a["input"].(string)
		if !ok {
			return nil, mongoerr.New(50699, "%s requires its input to be a string, got %s", op, TypeName(a["input"]))
		}
		if !a.given("chars") {
			return space(s), nil
		}
		chars, ok := a["chars"].(string)
		if !ok {
			return nil, mongoerr.New(50700, "%s requires 'chars' to be a string, got %s", op, TypeName(a["chars"]))
		}
		if chars == "" {
			return s, nil
		}
		return trim(s, chars), nil
	}), nil
}

func compileReplaceText(op string, arg any, n int) (*Expr, error) {
	p, err := named(op, arg, []string{"input", "find", "replacement"}, nil)
	if err != nil {
		return nil, err
	}
	return p.expr(func(a args) (any, error) {
		var text [3]string
		for i, name := range []string{"input", "find", "replacement"} {
			s, ok := a[name].(string)
			if !ok && !nullish(a[name]) {
				return nil, mongoerr.New(51746-int32(i), "%s requires that '%s' be a string, found: %s", op, name, TypeName(a[name]))
			}
			text[i] = s
		}
		if a.null("input", "find", "replacement") {
			return nil, nil
		}
		return strings.Replace(text[0], text[1], text[2], n), nil
	}), nil
}

func compileRegexCall(op string, arg any) (*Expr, error) {
	p, err := named(op, arg, []string{"input", "regex"}, []string{"options"})
	if err != nil {
		return nil, err
	}
	return p.expr(func(a args) (any, error) {
		if a.null("input", "regex") {
			switch op {
			case "$regexMatch":
				return false, nil
			case "$regexFind":
				return nil, nil
			}
			return bson.A{}, nil
		}
		input, ok := a["input"].(string)
		if !ok {
			return nil, mongoerr.New(51104, "%s needs 'input' to be of type string, not %s", op, TypeName(a["input"]))
		}
		r, isRegex := a["regex"].(bson.Regex)
		if s, isString := a["regex"].(string); isString {
			r, isRegex = bson.Regex{Pattern: s}, true
		}
		if !isRegex {
			return nil, mongoerr.New(51105, "%s needs 'regex' to be of type string or regex, not %s", op, TypeName(a["regex"]))
		}
		if o, _ := a["options"].(string); o != "" {
			r.Options = o
		}
		re, err := compileRegex(r.Pattern, r.Options)
		if err != nil {
			return nil, err
		}
		switch op {
		case "$regexMatch":
			return re.MatchString(input), nil
		case "$regexFind":
			if m := re.FindStringSubmatchIndex(input); m != nil {
				return found(re, input, m), nil
			}
			return nil, nil
		}
		all := bson.A{}
		for _, m := range re.FindAllStringSubmatchIndex(input, -1) {
			all = append(all, found(re, input, m))
		}
		return all, nil
	}), nil
}

func found(re *regexp.Regexp, input string, m []int) bson.D {
	captures := bson.A{}
	for i := 1; i <= re.NumSubexp(); i++ {
		if m[2*i] < 0 {
			captures = append(captures, nil)
			continue
		}
		captures = append(captures, input[m[2*i]:m[2*i+1]])
	}
	return bson.D{{Key: "match", Value: input[m[0]:m[1]]}, {Key: "idx", Value: int32(utf8.RuneCountInString(input[:m[0]]))}, {Key: "captures", Value: captures}}
}
