package bicep

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// EvalValue returns the value of an expression or a literal of the file: a bool, an int, a string,
// or nil for null. A name is looked up in given, then in the file's variables, then in the defaults
// of its parameters; a path such as a.outputs.b is given under that name.
//
// It supports what conditions consist of: literals, ! && || == != < <= > >=, a ? b : c,
// parentheses, '…${…}…', empty, min, max and replace. Anything else is an error.
func (f *File) EvalValue(v Value, given map[string]any) (_ any, err error) {
	defer caught(&err, "evaluate "+v.Text)
	return f.value(v, given), nil
}

func (f *File) value(v Value, given map[string]any) any {
	switch v.Kind {
	case String:
		return v.Text
	case Expression:
		e := evaluator{parser: parser{tokens: scan(v.Text)}, file: f, given: given}
		result := e.choice()
		e.expected(e.peek().kind == end, "the end")
		return result
	case Object, Array:
	}
	fail("line %d is neither a literal nor an expression", v.Line)
	return nil
}

type evaluator struct {
	parser
	file  *File
	given map[string]any
}

// operator consumes an operator, whose characters are tokens of their own.
func (e *evaluator) operator(signs string) bool {
	for i := range signs {
		if e.at+i >= len(e.tokens) || e.tokens[e.at+i].kind != sign || e.tokens[e.at+i].text != signs[i:i+1] {
			return false
		}
	}
	e.at += len(signs)
	return true
}

func (e *evaluator) choice() any {
	chosen := e.binary(0)
	if !e.operator("?") {
		return chosen
	}
	yes := e.choice()
	e.expected(e.operator(":"), ":")
	no := e.choice()
	if condition(chosen) {
		return yes
	}
	return no
}

func condition(v any) bool {
	is, ok := v.(bool)
	if !ok {
		fail("%v is no condition", v)
	}
	return is
}

// levels are the operators with two operands, each level before those that bind more tightly.
var levels = [][]string{{"||"}, {"&&"}, {"==", "!=", "<=", ">=", "<", ">"}}

// binary evaluates operators of a level and of those behind it. Both sides of && and || are
// evaluated, since nothing here has side effects.
func (e *evaluator) binary(level int) any {
	if level == len(levels) {
		return e.single()
	}
	left := e.binary(level + 1)
	for {
		i := slices.IndexFunc(levels[level], e.operator)
		if i < 0 {
			return left
		}
		left = combined(left, levels[level][i], e.binary(level+1))
	}
}

func combined(left any, operator string, right any) bool {
	switch operator {
	case "==":
		return left == right
	case "!=":
		return left != right
	}
	var results map[string]bool
	switch l := left.(type) {
	case bool:
		if r, ok := right.(bool); ok {
			results = map[string]bool{"&&": l && r, "||": l || r}
		}
	case int:
		if r, ok := right.(int); ok {
			results = map[string]bool{"<": l < r, "<=": l <= r, ">": l > r, ">=": l >= r}
		}
	}
	result, known := results[operator]
	if !known {
		fail("%v %s %v: the operator does not take these values", left, operator, right)
	}
	return result
}

func (e *evaluator) single() any {
	if e.operator("!") {
		return !condition(e.single())
	}
	if e.operator("(") {
		v := e.choice()
		e.expected(e.operator(")"), ")")
		return v
	}
	switch t := e.next(); t.kind {
	case text:
		return t.text
	case word:
		return e.named(t.text)
	case interpolated:
		return e.interpolated(t.text)
	case end, newline, sign:
		e.at--
	}
	e.expected(false, "a value that this evaluator knows")
	return nil
}

// interpolated returns a text with the values of its ${…}, which are not nested.
func (e *evaluator) interpolated(text string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		expression, after, _ := strings.Cut(rest, "}")
		fmt.Fprint(&b, e.file.value(Value{Text: expression}, e.given))
		text = after
	}
}

func (e *evaluator) named(name string) any {
	if n, err := strconv.Atoi(name); err == nil {
		return n
	}
	switch name {
	case "true", "false":
		return name == "true"
	case "null":
		return nil
	}
	if e.operator("(") {
		return e.function(name)
	}
	for e.operator(".") {
		name += "." + e.next().text
	}
	if v, ok := e.given[name]; ok {
		return v
	}
	for _, keyword := range []string{"var", "param"} {
		if d, ok := e.file.Find(keyword, name); ok && d.HasValue {
			return e.file.value(d.Value, e.given)
		}
	}
	fail("%s is not defined", name)
	return nil
}

func (e *evaluator) function(name string) any {
	var arguments []any
	for !e.operator(")") {
		e.expected(len(arguments) == 0 || e.operator(","), ",")
		arguments = append(arguments, e.choice())
	}
	switch {
	case name == "empty" && len(arguments) == 1:
		return arguments[0] == "" || arguments[0] == nil
	case name == "replace" && len(arguments) == 3:
		return strings.ReplaceAll(fmt.Sprint(arguments[0]), fmt.Sprint(arguments[1]), fmt.Sprint(arguments[2]))
	case (name == "min" || name == "max") && len(arguments) == 2:
		a, aIs := arguments[0].(int)
		b, bIs := arguments[1].(int)
		if !aIs || !bIs {
			break
		}
		if name == "min" {
			return min(a, b)
		}
		return max(a, b)
	}
	fail("%s%v: a function that this evaluator does not know", name, arguments)
	return nil
}
