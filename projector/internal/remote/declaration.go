package remote

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// Protocol is the version of the protocol.
const Protocol = 1

// Declaration is what a program declares: what a projection in Go returns from its interfaces.
type Declaration struct {
	Name        string
	Collections []projection.Collection
	// OneDocument reports whether the projection is a [projection.OneDocument] of its collection.
	OneDocument     bool
	NeedsPostImages bool
	// TakesBase64 reports whether the program takes a document that JSON cannot carry as BSON.
	TakesBase64 bool

	// Text is the declaration as the program sent it, and Hash its SHA-256 in hex.
	Text []byte
	Hash string
}

// ReadDeclaration reads an answer to GET /projection.
func ReadDeclaration(text []byte) (*Declaration, error) {
	n, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("the declaration %w", err)
	}
	sum := sha256.Sum256(text)
	d := &Declaration{Text: text, Hash: hex.EncodeToString(sum[:])}
	o := n.object("the declaration")
	if version := o.need("protocol"); o.err == nil && version.text != "1" {
		return nil, fmt.Errorf("the declaration has the protocol %s, and this projector speaks %d", shorten(version.raw), Protocol)
	}
	d.Name = o.text("name")
	for _, each := range o.list("collections") {
		c, err := readCollection(each)
		if err != nil {
			return nil, fmt.Errorf("the declaration: %w", err)
		}
		if slices.ContainsFunc(d.Collections, func(other projection.Collection) bool { return other.Name == c.Name }) {
			o.fail("declares the collection %q twice", shorten(c.Name))
		}
		d.Collections = append(d.Collections, c)
	}
	d.OneDocument, d.NeedsPostImages, d.TakesBase64 = o.flag("oneDocument"), o.flag("needsPostImages"), o.flag("takesBase64")
	switch {
	case o.err != nil:
	case d.Name == "":
		o.fail("has an empty name")
	case len(d.Collections) == 0:
		o.fail("declares no collection")
	case d.OneDocument && len(d.Collections) != 1:
		o.fail("promises one document for each aggregate, and so has exactly one collection, not %d", len(d.Collections))
	}
	return d, o.end()
}

func readCollection(n node) (c projection.Collection, err error) {
	o := n.object("a collection")
	if c.Name = o.text("name"); o.err == nil {
		o.what = fmt.Sprintf("the collection %q", shorten(c.Name))
		if why := refusedName(c.Name); why != "" {
			o.fail("%s", why)
		}
	}
	if by, ok := o.take("keyedBy"); ok {
		switch {
		case by.kind == '"' && by.text == "aggregate":
			c.KeyedBy = projection.ByAggregate
		case by.kind == '[' && len(by.items) > 0:
			for _, step := range by.items {
				if step.kind != '"' || step.text == "" || strings.Contains(step.text, ".") {
					o.fail(`has a keyedBy with a step that is not the name of a field`)
				}
				c.KeyedBy += "." + step.text
			}
			c.KeyedBy = c.KeyedBy[1:]
		default:
			o.fail(`has a keyedBy that is neither "aggregate" nor a field, such as ["data","customerId"]`)
		}
	}
	indexes, ok := o.take("indexes")
	if ok && indexes.kind != '[' {
		o.fail("has indexes that are not an array")
	}
	for _, each := range indexes.items {
		index, err := readIndex(each)
		if err != nil {
			o.fail("has a wrong index: %v", err)
		}
		c.Indexes = append(c.Indexes, index)
	}
	return c, o.end()
}

func readIndex(n node) (index projection.Index, err error) {
	o := n.object("an index")
	for _, each := range o.list("keys") {
		key := each.object("a key")
		field, order := readField(&key), key.need("order")
		if key.err == nil && order.text != "1" && order.text != "-1" {
			key.fail("has an order that is neither 1 nor -1")
		}
		if err := key.end(); err != nil {
			return index, err
		}
		direction := int32(1)
		if order.text == "-1" {
			direction = -1
		}
		index.Keys = append(index.Keys, bson.E{Key: field, Value: direction})
	}
	if o.err == nil && len(index.Keys) == 0 {
		o.fail("has no key")
	}
	index.Unique = o.flag("unique")
	if partial, ok := o.take("partial"); ok {
		if index.Partial, err = readFilter(partial); err != nil {
			o.fail("has a wrong partial filter: %v", err)
		}
	}
	return index, o.end()
}

// readFilter reads a filter, whose operators begin with a dollar.
func readFilter(n node) (filter bson.D, err error) {
	if n.kind != '{' {
		return nil, errors.New("a filter is an object")
	}
	if err := bson.UnmarshalExtJSON([]byte(n.raw), false, &filter); err != nil {
		return nil, errors.New("it is not Extended JSON")
	}
	return filter, nil
}

// ownName is a name that Sluice gives to collections and views of its own.
var ownName = regexp.MustCompile(`(_positions|_processes|_build|_parked|_current|_v[0-9]+)$`)

// refusedName returns why a program may not write to a collection of that name; empty if it may.
func refusedName(name string) string {
	switch {
	case name == "" || strings.ContainsAny(name, "$\x00") || len(name) > 200:
		return "has a name that MongoDB does not take"
	case strings.HasPrefix(name, "system."):
		return "is one of MongoDB's own"
	case name == storeCollection || ownName.MatchString(name):
		return "has a name that Sluice uses for its own: choose one that is not " + storeCollection +
			" and does not end like _positions, _processes, _build, _parked, _current or _v2"
	}
	return ""
}

// Adopts returns why a projection with this declaration may not continue with another one; nil if
// it may. What decides where guards are and how documents are found cannot change.
func (d *Declaration) Adopts(next *Declaration) error {
	if next.Name != d.Name {
		return fmt.Errorf("the program declares the name %q instead of %q", shorten(next.Name), d.Name)
	}
	if next.OneDocument != d.OneDocument || d.OneDocument && next.Collections[0].Name != d.Collections[0].Name {
		return errors.New("the program declares another answer to whether an aggregate is one document, or another collection for it: the guards would be " +
			"looked for in another place")
	}
	for _, c := range d.Collections {
		i := slices.IndexFunc(next.Collections, func(n projection.Collection) bool { return n.Name == c.Name })
		if i >= 0 && next.Collections[i].KeyedBy != c.KeyedBy {
			return fmt.Errorf("the program declares another keyedBy for the collection %q", c.Name)
		}
	}
	return nil
}

// errNewVersion is what to do about a declaration that is refused.
var errNewVersion = errors.New("deploy the program that made this read model again, or make a new read model: set PROJECTION to another version, such as NAME:2, and build it")

// AppendDeclaration returns the declaration of a projection in Go.
func AppendDeclaration(p projection.Projection) ([]byte, error) {
	collections, declared := projection.Collections(p)
	if !declared {
		return nil, errors.New("the projection does not declare its collections: implement projection.Stored")
	}
	_, one := p.(projection.OneDocument)
	images, ok := p.(projection.PostImages)
	var e encoder
	e.raw(fmt.Sprintf(`{"protocol":%d,"name":`, Protocol))
	e.text(p.Name())
	e.raw(`,"collections":[`)
	for i, c := range collections {
		e.comma(i)
		e.raw(`{"name":`)
		e.text(c.Name)
		switch {
		case c.KeyedBy == projection.ByAggregate:
			e.raw(`,"keyedBy":"aggregate"`)
		case c.KeyedBy != "":
			steps, err := json.Marshal(strings.Split(c.KeyedBy, "."))
			e.fail(err)
			e.raw(`,"keyedBy":`, string(steps))
		}
		e.raw(`,"indexes":[`)
		for j, index := range c.Indexes {
			e.comma(j)
			e.index(index)
		}
		e.raw(`]}`)
	}
	e.raw(fmt.Sprintf(`],"oneDocument":%t,"needsPostImages":%t,"takesBase64":true}`, one, ok && images.NeedsPostImages()))
	return e.dst, e.err
}

func (e *encoder) index(index projection.Index) {
	e.raw(`{"keys":[`)
	for i, key := range index.Keys {
		e.comma(i)
		e.raw(`{`)
		e.path(key.Key)
		e.raw(fmt.Sprintf(`,"order":%v}`, key.Value))
	}
	e.raw(fmt.Sprintf(`],"unique":%t`, index.Unique))
	if index.Partial != nil {
		e.raw(`,"partial":`)
		e.value(index.Partial)
	}
	e.raw(`}`)
}
