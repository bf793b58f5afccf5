package query

import (
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// maxPadding is how far an index may lie beyond an array's end.
const maxPadding = 1_500_000

// editor changes one document in place and remembers which paths changed.
type editor struct {
	doc       bson.D
	inserting bool
	env       *Env
	touched   []string // in order; the highest path that did not exist before
	wholes    []string
	rewritten []string // counts as changed although the value is the same
}

func (e *editor) touch(path string) {
	for _, t := range e.touched {
		if t == path || strings.HasPrefix(path, t+".") {
			return
		}
	}
	e.touched = append(e.touched, path)
}

// get follows a path through documents and array indexes.
func (e *editor) get(parts []string) (any, bool) { return getPath(e.doc, parts) }

func getPath(v any, parts []string) (any, bool) {
	for _, p := range parts {
		switch t := v.(type) {
		case bson.D:
			child, ok := value.Get(t, p)
			if !ok {
				return nil, false
			}
			v = child
		case bson.A:
			i, ok := value.Index(p)
			if !ok || i >= len(t) {
				return nil, false
			}
			v = t[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// rewrite sets a value and counts it as a change even if the field already has it.
func (e *editor) rewrite(parts []string, v any) {
	e.replaceField(parts, v)
	path := strings.Join(parts, ".")
	e.rewritten = append(e.rewritten, path)
	e.touch(path)
}

// set writes a value, creating documents on the way.
func (e *editor) set(parts []string, v any) error {
	if old, ok := e.get(parts); ok && identical(old, v) {
		return nil
	}
	created := ""
	out, err := setIn(e.doc, parts, 0, v, &created)
	if err != nil {
		return err
	}
	e.doc = out.(bson.D)
	if created == "" || e.env.before(5, 0) {
		created = strings.Join(parts, ".")
	}
	e.touch(created)
	return nil
}

func setIn(container any, parts []string, at int, v any, created *string) (any, error) {
	if at == len(parts) {
		return v, nil
	}
	note := func() {
		if *created == "" {
			*created = strings.Join(parts[:at+1], ".")
		}
	}
	switch t := container.(type) {
	case bson.D:
		child, ok := value.Get(t, parts[at])
		if !ok {
			note()
			child = bson.D{}
		}
		next, err := setIn(child, parts, at+1, v, created)
		if err != nil {
			return nil, err
		}
		return value.Set(t, parts[at], next), nil
	case bson.A:
		i, ok := value.Index(parts[at])
		if !ok {
			return nil, mongoerr.New(mongoerr.PathNotViable, "Cannot create field '%s' in element {%s: [...]}", parts[at], strings.Join(parts[:at], "."))
		}
		if i > len(t)+maxPadding {
			return nil, mongoerr.New(34, "can't backfill more than %d elements", maxPadding)
		}
		var child any = bson.D{}
		if i < len(t) {
			child = t[i]
		} else {
			note()
			for len(t) <= i {
				t = append(t, nil)
			}
		}
		next, err := setIn(child, parts, at+1, v, created)
		if err != nil {
			return nil, err
		}
		t[i] = next
		return t, nil
	default:
		return nil, mongoerr.New(mongoerr.PathNotViable, "Cannot create field '%s' in element {%s: %v}", parts[at], strings.Join(parts[:at], "."), container)
	}
}

// unset removes a field; in an array it leaves null in place.
func (e *editor) unset(parts []string) {
	if _, ok := e.get(parts); !ok {
		return
	}
	e.doc = unsetIn(e.doc, parts).(bson.D)
	e.touch(strings.Join(parts, "."))
}

func unsetIn(container any, parts []string) any {
	switch t := container.(type) {
	case bson.D:
		if len(parts) == 1 {
			return value.Remove(t, parts[0])
		}
		child, _ := value.Get(t, parts[0])
		return value.Set(t, parts[0], unsetIn(child, parts[1:]))
	case bson.A:
		i, _ := value.Index(parts[0])
		if len(parts) == 1 {
			t[i] = nil
		} else {
			t[i] = unsetIn(t[i], parts[1:])
		}
		return t
	}
	return container
}

// appended notes that elements were added to an array's end, which an event
// describes one by one instead of repeating the array.
func (e *editor) appended(path string, from, to int) {
	for i := from; i < to; i++ {
		e.touch(path + "." + strconv.Itoa(i))
	}
}

// whole records an array that the change event contains as a whole, whichever elements have
// changed.
func (e *editor) whole(path string) {
	for _, w := range e.wholes {
		if w == path || strings.HasPrefix(path, w+".") {
			return
		}
	}
	e.wholes = append(e.wholes, path)
}

func (e *editor) change(old bson.D) Change {
	for _, path := range e.wholes {
		e.touched = slices.DeleteFunc(e.touched, func(t string) bool { return strings.HasPrefix(t, path+".") })
		e.touch(path)
	}
	var c Change
	slices.SortStableFunc(e.touched, func(a, b string) int { return e.env.comparePaths(value.Split(a), value.Split(b)) })
	for _, path := range e.touched {
		parts := value.Split(path)
		now, ok := getPath(e.doc, parts)
		if !ok {
			c.Removed = append(c.Removed, path)
			continue
		}
		if was, had := getPath(old, parts); had && identical(was, now) && !slices.Contains(e.rewritten, path) {
			continue
		}
		c.Updated = append(c.Updated, bson.E{Key: path, Value: now})
	}
	if !e.env.before(5, 0) {
		c.Updated = inOplogOrder(old, c.Updated)
	}
	return c
}
