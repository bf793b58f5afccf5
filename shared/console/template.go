package console

import (
	"fmt"
	"html"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/template/parse"
)

// markup is HTML; any other value is escaped when a template writes it.
type markup string

// set are templates in the syntax of html/template, of which they use fields, variables, functions,
// if, with, range and template.
//
// They are not run by html/template, because it calls methods by names that are known only when it
// runs, so that the linker can drop no exported method of any type. Measured: the producer in its
// image would have 30.2 MB instead of 23.4 MB, above the bound of the image, and 2.4 MB more of
// resident memory from the start, whether the console is on or not.
//
// Here a name is a field or a function. A value is escaped for text and for attributes
// in quotes, and is written nowhere else; what goes into the query of an address calls query.
type set map[string]*parse.Tree

// parseAll reads the templates of the assets. It panics if one is wrong.
func parseAll() set {
	all := set{}
	names, err := fs.Glob(assets, "assets/*.html")
	if err != nil {
		panic(err)
	}
	for _, name := range names {
		text, err := assets.ReadFile(name)
		if err != nil {
			panic(err)
		}
		trees, err := parseText(name, string(text))
		if err != nil {
			panic(err)
		}
		maps.Copy(all, trees)
	}
	return all
}

// parseText returns the templates that a text defines.
func parseText(name, text string) (set, error) {
	trees, err := parse.Parse(name, text, "", "", functions)
	if err != nil {
		return nil, fmt.Errorf("parse template: %w", err)
	}
	delete(trees, name)
	return trees, nil
}

// execute runs a template with a value as its dot.
func (s set) execute(name string, dot any, functions map[string]any) (text markup, err error) {
	tree := s[name]
	if tree == nil {
		return "", fmt.Errorf("there is no template %q", name)
	}
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("template %s: %v", name, reason)
		}
	}()
	r := running{templates: s, functions: functions}
	r.template(tree, reflect.ValueOf(dot))
	return markup(r.out.String()), nil
}

// running is the execution of a template. Its methods panic if the template does not fit its data.
type running struct {
	templates set
	functions map[string]any
	out       strings.Builder
	variables []variable
}

type variable struct {
	name  string
	value reflect.Value
}

// template runs a template, which sees no variables but its dot.
func (r *running) template(tree *parse.Tree, dot reflect.Value) {
	callers := r.variables
	r.variables = []variable{{"$", dot}}
	r.node(dot, tree.Root)
	r.variables = callers
}

func (r *running) node(dot reflect.Value, node parse.Node) {
	switch n := node.(type) {
	case *parse.ListNode:
		for _, child := range n.Nodes {
			r.node(dot, child)
		}
	case *parse.TextNode:
		r.out.Write(n.Text)
	case *parse.ActionNode:
		if value := r.pipe(dot, n.Pipe); len(n.Pipe.Decl) == 0 {
			r.write(value)
		}
	case *parse.IfNode:
		r.branch(dot, &n.BranchNode, false)
	case *parse.WithNode:
		r.branch(dot, &n.BranchNode, true)
	case *parse.RangeNode:
		r.each(dot, n)
	case *parse.TemplateNode:
		tree := r.templates[n.Name]
		if tree == nil {
			panic("there is no template " + n.Name)
		}
		r.template(tree, r.pipe(dot, n.Pipe))
	default:
		panic(fmt.Sprintf("%s cannot be used here", node))
	}
}

// branch runs one list of an if or a with; with makes the value the dot.
func (r *running) branch(dot reflect.Value, n *parse.BranchNode, with bool) {
	defer r.scope()()
	value := r.pipe(dot, n.Pipe)
	switch {
	case truth(value) && with:
		r.node(value, n.List)
	case truth(value):
		r.node(dot, n.List)
	case n.ElseList != nil:
		r.node(dot, n.ElseList)
	}
}

// scope returns a function that forgets the variables which are declared from now on.
func (r *running) scope() func() {
	n := len(r.variables)
	return func() { r.variables = r.variables[:n] }
}

func (r *running) each(dot reflect.Value, n *parse.RangeNode) {
	defer r.scope()()
	value := indirect(r.pipe(dot, n.Pipe))
	count := 0
	one := func(key, element reflect.Value) {
		defer r.scope()()
		count++
		switch names := n.Pipe.Decl; len(names) {
		case 1:
			r.variables = append(r.variables, variable{names[0].Ident[0], element})
		case 2:
			r.variables = append(r.variables, variable{names[0].Ident[0], key}, variable{names[1].Ident[0], element})
		}
		r.node(element, n.List)
	}
	if value.IsValid() && value.Kind() == reflect.Map {
		keys := value.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			one(key, value.MapIndex(key))
		}
	} else if value.IsValid() {
		for i := range value.Len() {
			one(reflect.ValueOf(i), value.Index(i))
		}
	}
	if count == 0 && n.ElseList != nil {
		r.node(dot, n.ElseList)
	}
}

// pipe returns the value of a pipeline of one command, and declares or assigns its variable.
func (r *running) pipe(dot reflect.Value, pipe *parse.PipeNode) reflect.Value {
	if pipe == nil {
		return reflect.Value{}
	}
	if len(pipe.Cmds) != 1 {
		panic(fmt.Sprintf("%s has several commands", pipe))
	}
	args := pipe.Cmds[0].Args
	var value reflect.Value
	if name, is := args[0].(*parse.IdentifierNode); is {
		value = r.call(dot, name.Ident, args[1:])
	} else {
		value = r.argument(dot, args[0])
	}
	if len(pipe.Decl) == 1 && !pipe.IsAssign {
		r.variables = append(r.variables, variable{pipe.Decl[0].Ident[0], value})
	} else if len(pipe.Decl) == 1 {
		r.variables[r.find(pipe.Decl[0].Ident[0])].value = value
	}
	return value
}

func (r *running) find(name string) int {
	for i, v := range slices.Backward(r.variables) {
		if v.name == name {
			return i
		}
	}
	panic("there is no variable " + name)
}

func (r *running) argument(dot reflect.Value, node parse.Node) reflect.Value {
	switch n := node.(type) {
	case *parse.DotNode:
		return dot
	case *parse.FieldNode:
		return fields(dot, n.Ident)
	case *parse.VariableNode:
		return fields(r.variables[r.find(n.Ident[0])].value, n.Ident[1:])
	case *parse.PipeNode:
		return r.pipe(dot, n)
	case *parse.StringNode:
		return reflect.ValueOf(n.Text)
	case *parse.BoolNode:
		return reflect.ValueOf(n.True)
	}
	panic(fmt.Sprintf("%s cannot be used here", node))
}

// fields follows names through structs; a name behind a nil pointer has no value.
func fields(value reflect.Value, names []string) reflect.Value {
	for _, name := range names {
		value = indirect(value)
		if !value.IsValid() {
			return value
		}
		field := value.FieldByName(name)
		if !field.IsValid() {
			panic(fmt.Sprintf("%s has no field %s", value.Type(), name))
		}
		value = field
	}
	return value
}

func indirect(value reflect.Value) reflect.Value {
	for value.IsValid() && (value.Kind() == reflect.Pointer || value.Kind() == reflect.Interface) {
		value = value.Elem()
	}
	return value
}

// call calls a function; and, or and not are part of the language.
func (r *running) call(dot reflect.Value, name string, args []parse.Node) reflect.Value {
	switch name {
	case "and", "or":
		var value reflect.Value
		for _, arg := range args {
			if value = r.argument(dot, arg); truth(value) == (name == "or") {
				return value
			}
		}
		return value
	case "not":
		return reflect.ValueOf(!truth(r.argument(dot, args[0])))
	}
	function := reflect.ValueOf(r.functions[name])
	if !function.IsValid() {
		panic("there is no function " + name)
	}
	values := make([]reflect.Value, len(args))
	for i, arg := range args {
		if values[i] = r.argument(dot, arg); !values[i].IsValid() {
			values[i] = reflect.Zero(function.Type().In(min(i, function.Type().NumIn()-1)))
		}
	}
	return function.Call(values)[0]
}

// truth reports whether a value counts as true: it is not false, 0, empty or nil.
func truth(value reflect.Value) bool {
	if value.IsValid() && value.Kind() == reflect.Interface {
		value = value.Elem()
	}
	if !value.IsValid() {
		return false
	}
	switch value.Kind() {
	case reflect.Slice, reflect.Map, reflect.String:
		return value.Len() > 0
	case reflect.Struct:
		return true
	default:
		return !value.IsZero()
	}
}

// write writes a value, escaped unless it is markup.
func (r *running) write(value reflect.Value) {
	value = indirect(value)
	switch {
	case !value.IsValid():
	case value.Type() == reflect.TypeFor[markup]():
		r.out.WriteString(value.String())
	case value.Kind() == reflect.String:
		r.out.WriteString(html.EscapeString(value.String()))
	case value.CanInt():
		r.out.WriteString(strconv.FormatInt(value.Int(), 10))
	default:
		panic(fmt.Sprintf("a value of type %s cannot be written", value.Type()))
	}
}
