package bicep

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Eval returns the value of an expression of the file: a bool, an int, a string, or nil for null. A
// name is looked up in given, then in the file's variables, then in the defaults of its parameters;
// a path such as a.outputs.b is given under that name.
//
// It supports what conditions consist of: literals, ! && || == != < <= > >=, a ? b : c,
// parentheses, '…${…}…', empty, min, max and replace. Anything else is an error.
func (f *File) Eval(expression string, given map[string]any) (any, error) {
	tokens, err := scan(expression)
	if err != nil {
		return nil, fmt.Errorf("evaluate %s: %w", expression, err)
	}
	e := evaluator{parser: parser{tokens: tokens}, file: f, given: given}
	v, err := e.choice()
	if err == nil && e.peek().kind != end {
		err = e.expected("the end")
	}
	if err != nil {
		return nil, fmt.Errorf("evaluate %s: %w", expression, err)
	}
	return v, nil
}

// EvalValue is [File.Eval] of a parsed value.
func (f *File) EvalValue(v Value, given map[string]any) (any, error) {
	switch v.Kind {
	case String:
		return v.Text, nil
	case Expression:
		return f.Eval(v.Text, given)
	case Object, Array:
	}
	return nil, fmt.Errorf("evaluate line %d: neither a literal nor an expression", v.Line)
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

func (e *evaluator) choice() (any, error) {
	condition, err := e.binary(0)
	if err != nil || !e.operator("?") {
		return condition, err
	}
	yes, err := e.choice()
	if err != nil {
		return nil, err
	}
	if !e.operator(":") {
		return nil, e.expected(":")
	}
	no, err := e.choice()
	if err != nil {
		return nil, err
	}
	is, ok := condition.(bool)
	if !ok {
		return nil, fmt.Errorf("%v is no condition", condition)
	}
	if is {
		return yes, nil
	}
	return no, nil
}

// levels are the operators with two operands, each level before those that bind more tightly.
var levels = [][]string{{"||"}, {"&&"}, {"==", "!=", "<=", ">=", "<", ">"}}

// binary evaluates operators of a level and of those behind it. Both sides of && and || are
// evaluated, since nothing here has side effects.
func (e *evaluator) binary(level int) (any, error) {
	if level == len(levels) {
		return e.single()
	}
	left, err := e.binary(level + 1)
	for err == nil {
		i := slices.IndexFunc(levels[level], e.operator)
		if i < 0 {
			break
		}
		var right any
		if right, err = e.binary(level + 1); err == nil {
			left, err = combined(left, levels[level][i], right)
		}
	}
	return left, err
}

func combined(left any, operator string, right any) (any, error) {
	switch operator {
	case "==":
		return left == right, nil
	case "!=":
		return left != right, nil
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
		return nil, fmt.Errorf("%v %s %v: the operator does not take these values", left, operator, right)
	}
	return result, nil
}

func (e *evaluator) single() (any, error) {
	if e.operator("!") {
		v, err := e.single()
		is, ok := v.(bool)
		if err == nil && !ok {
			err = fmt.Errorf("!%v: it must be a condition", v)
		}
		return !is, err
	}
	if e.operator("(") {
		v, err := e.choice()
		if err == nil && !e.operator(")") {
			err = e.expected(")")
		}
		return v, err
	}
	switch t := e.next(); t.kind {
	case text:
		return t.text, nil
	case word:
		return e.named(t.text)
	case interpolated:
		return e.interpolated(t.text)
	case end, newline, sign:
		e.at--
	}
	return nil, e.expected("a value that this evaluator knows")
}

// interpolated returns a text with the values of its ${…}, which are not nested.
func (e *evaluator) interpolated(text string) (any, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		expression, after, _ := strings.Cut(rest, "}")
		v, err := e.file.Eval(expression, e.given)
		if err != nil {
			return nil, err
		}
		fmt.Fprint(&b, v)
		text = after
	}
}

func (e *evaluator) named(name string) (any, error) {
	if n, err := strconv.Atoi(name); err == nil {
		return n, nil
	}
	switch name {
	case "true", "false":
		return name == "true", nil
	case "null":
		return nil, nil
	}
	if e.operator("(") {
		return e.function(name)
	}
	for e.operator(".") {
		name += "." + e.next().text
	}
	if v, ok := e.given[name]; ok {
		return v, nil
	}
	for _, keyword := range []string{"var", "param"} {
		if d, ok := e.file.Find(keyword, name); ok && d.HasValue {
			return e.file.EvalValue(d.Value, e.given)
		}
	}
	return nil, fmt.Errorf("%s is not defined", name)
}

func (e *evaluator) function(name string) (any, error) {
	var arguments []any
	for !e.operator(")") {
		if len(arguments) > 0 && !e.operator(",") {
			return nil, e.expected(",")
		}
		v, err := e.choice()
		if err != nil {
			return nil, err
		}
		arguments = append(arguments, v)
	}
	switch {
	case name == "empty" && len(arguments) == 1:
		return arguments[0] == "" || arguments[0] == nil, nil
	case name == "replace" && len(arguments) == 3:
		return strings.ReplaceAll(fmt.Sprint(arguments[0]), fmt.Sprint(arguments[1]), fmt.Sprint(arguments[2])), nil
	case (name == "min" || name == "max") && len(arguments) == 2:
		a, aIs := arguments[0].(int)
		b, bIs := arguments[1].(int)
		if !aIs || !bIs {
			break
		}
		if name == "min" {
			return min(a, b), nil
		}
		return max(a, b), nil
	}
	return nil, fmt.Errorf("%s%v: a function that this evaluator does not know", name, arguments)
}
