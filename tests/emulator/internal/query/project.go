package query

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// Projection is a compiled $project, find projection, $addFields or $unset.
type Projection struct {
	root      *node
	inclusive bool // keep only what is named
	add       bool // $addFields: keep everything, compute what is named
	dropID    bool
	env       *Env
	later     []func(in, out bson.D) (bson.D, error) // what a find does with arrays
}

type node struct {
	keep     bool
	expr     *Expr
	children map[string]*node
	order    []string
}

func (n *node) child(key string) *node {
	if n.children == nil {
		n.children = map[string]*node{}
	}
	c := n.children[key]
	if c == nil {
		c = &node{}
		n.children[key] = c
		n.order = append(n.order, key)
	}
	return c
}

func (n *node) at(path string) (*node, error) {
	for _, p := range value.Split(path) {
		if p == "" {
			return nil, mongoerr.New(40352, "FieldPath cannot be constructed with empty string")
		}
		if strings.HasPrefix(p, "$") {
			return nil, mongoerr.Unsupported("the projection path %q", path)
		}
		if n.keep || n.expr != nil {
			return nil, mongoerr.New(31249, "Path collision at %s", path)
		}
		n = n.child(p)
	}
	if n.keep || n.expr != nil || n.children != nil {
		return nil, mongoerr.New(31250, "Path collision at %s", path)
	}
	return n, nil
}

// CompileProjection reads a projection document; nil when it is empty.
func CompileProjection(d bson.D, env *Env) (*Projection, error) {
	if len(d) == 0 {
		return nil, nil
	}
	p := &Projection{root: &node{}, env: env}
	mode := 0 // 1 inclusive, -1 exclusive
	if err := p.fields("", d, &mode); err != nil {
		return nil, err
	}
	p.inclusive = mode == 1 || (mode == 0 && !p.dropID) // _id: 1 alone keeps nothing else; beside exclusions it has no effect
	if p.inclusive && !p.dropID {
		if p.root.children["_id"] == nil {
			p.root.child("_id").keep = true
		}
	}
	return p, nil
}

func (p *Projection) fields(prefix string, d bson.D, mode *int) error {
	for _, e := range d {
		path := join(prefix, e.Key)
		if sub, ok := e.Value.(bson.D); ok && len(sub) > 0 && !strings.HasPrefix(sub[0].Key, "$") {
			if err := p.fields(path, sub, mode); err != nil {
				return err
			}
			continue
		}
		flag, isFlag := false, false
		switch t := e.Value.(type) {
		case bool:
			flag, isFlag = t, true
		case int32, int64, float64, bson.Decimal128:
			flag, isFlag = truthy(t), true
		}
		if path == "_id" && isFlag {
			p.dropID = !flag
			continue
		}
		want := 1
		if isFlag && !flag {
			want = -1
		}
		if *mode != 0 && want != *mode {
			if want == 1 {
				return mongoerr.New(31253, "Cannot do inclusion on field %s in exclusion projection", path)
			}
			return mongoerr.New(31254, "Cannot do exclusion on field %s in inclusion projection", path)
		}
		*mode = want
		n, err := p.root.at(path)
		if err != nil {
			return err
		}
		if isFlag {
			n.keep = true
			continue
		}
		if err := isExpression(e.Value); err != nil {
			return err
		}
		if n.expr, err = CompileExpr(e.Value); err != nil {
			return err
		}
	}
	return nil
}

// isExpression refuses in a projection's own words what stands for a field and is no expression;
// deeper down, it is [CompileExpr]'s.
func isExpression(v any) error {
	d, ok := v.(bson.D)
	switch {
	case !ok || len(d) == 0:
		return nil
	case len(d) > 1:
		return mongoerr.New(16410, "FieldPath field names may not start with '$'. Consider using $getField or $setField.")
	}
	if name := d[0].Key; special[name] == nil && !isOperator(name) && !slices.Contains(foreignExpressions, name) {
		return mongoerr.New(31325, "Unknown expression %s", name)
	}
	return nil
}

// CompileAddFields reads the argument of $set and $addFields.
func CompileAddFields(d bson.D, env *Env) (*Projection, error) {
	p := &Projection{root: &node{}, add: true, env: env}
	return p, p.additions("", d)
}

func (p *Projection) additions(prefix string, d bson.D) error {
	for _, e := range d {
		path := join(prefix, e.Key)
		if sub, ok := e.Value.(bson.D); ok && len(sub) > 0 && !strings.HasPrefix(sub[0].Key, "$") {
			if err := p.additions(path, sub); err != nil {
				return err
			}
			continue
		}
		n, err := p.root.at(path)
		if err != nil {
			return err
		}
		if n.expr, err = CompileExpr(e.Value); err != nil {
			return err
		}
	}
	return nil
}

// Apply projects one document.
func (p *Projection) Apply(d bson.D) (bson.D, error) {
	s := &scope{root: d, env: p.env}
	out, err := p.doc(p.root, d, s)
	if err != nil {
		return nil, err
	}
	if p.dropID {
		out = value.Remove(out, "_id")
	}
	for _, f := range p.later {
		if out, err = f(d, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (p *Projection) doc(n *node, d bson.D, s *scope) (bson.D, error) {
	out := make(bson.D, 0, len(d))
	for _, e := range d {
		c := n.children[e.Key]
		switch {
		case c == nil:
			if !p.inclusive {
				out = append(out, e)
			}
		case c.expr != nil:
			if p.add { // keeps its place
				v, err := c.expr.eval(s)
				if err != nil {
					return nil, err
				}
				if _, missing := v.(value.Missing); !missing {
					out = append(out, bson.E{Key: e.Key, Value: v})
				}
			}
		case c.keep:
			if p.inclusive {
				out = append(out, e)
			}
		default:
			v, keep, err := p.value(c, e.Value, s)
			if err != nil {
				return nil, err
			}
			if keep {
				out = append(out, bson.E{Key: e.Key, Value: v})
			}
		}
	}
	return p.computed(n, d, out, s)
}

// computed appends the fields that the input did not have.
func (p *Projection) computed(n *node, in, out bson.D, s *scope) (bson.D, error) {
	for _, key := range n.order {
		c := n.children[key]
		_, had := value.Get(in, key)
		switch {
		case c.expr != nil && (!had || !p.add):
			v, err := c.expr.eval(s)
			if err != nil {
				return nil, err
			}
			if _, missing := v.(value.Missing); !missing {
				out = value.Set(out, key, v)
			}
		case c.expr == nil && !c.keep && !had && c.computes():
			sub, err := p.computed(c, nil, bson.D{}, s)
			if err != nil {
				return nil, err
			}
			out = value.Set(out, key, sub)
		}
	}
	return out, nil
}

func (n *node) computes() bool {
	if n.expr != nil {
		return true
	}
	for _, c := range n.children {
		if c.computes() {
			return true
		}
	}
	return false
}

func (p *Projection) value(n *node, v any, s *scope) (any, bool, error) {
	switch t := v.(type) {
	case bson.D:
		out, err := p.doc(n, t, s)
		return out, true, err
	case bson.A:
		out := bson.A{}
		for _, e := range t {
			got, keep, err := p.value(n, e, s)
			if err != nil {
				return nil, false, err
			}
			if keep {
				out = append(out, got)
			}
		}
		return out, true, nil
	}
	if n.computes() {
		out, err := p.computed(n, nil, bson.D{}, s)
		return out, true, err
	}
	return v, !p.inclusive, nil
}
