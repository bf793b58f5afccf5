package projection

import (
	"cmp"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

const mirrorName = "mirror"

// Mirror keeps a copy of the watched collection: the current document for each documentKey._id.
// Inserts and replacements write the document. Updates write it too if the message carries the
// whole document; otherwise they change the same fields of the copy: its values are those of the
// source, but a field that an aggregation pipeline moved stays where it was, because the
// description of an update does not show that it was moved. Deletes remove it. The copies have no
// guard in them: it is in <name>_positions.
//
// The zero value mirrors whole documents into the collection mirror; [NewMirror] takes options.
type Mirror struct{ options MirrorOptions }

var _ Stored = Mirror{}

// Name implements [Projection]. It is mirror, or mirror_<collection> for another collection: two
// mirrors in one database have separate positions.
func (m Mirror) Name() string {
	if m.options.Collection == "" || m.options.Collection == mirrorName {
		return mirrorName
	}
	return mirrorName + "_" + m.options.Collection
}

// Collections implements [Stored].
func (m Mirror) Collections() []Collection {
	return []Collection{{Name: m.collection(), KeyedBy: cmp.Or(m.options.Key, "_id")}}
}

func (m Mirror) collection() string {
	return cmp.Or(m.options.Collection, mirrorName)
}

// Project implements [Projection].
func (m Mirror) Project(e Event) ([]Write, error) {
	id, moved, err := m.key(e)
	if err != nil {
		return nil, err
	}
	var writes []Write
	if moved.Type != 0 {
		writes = append(writes, Delete(m.collection(), moved))
	}
	if id.Type == 0 {
		return writes, nil
	}
	if e.Operation == envelope.Delete {
		return append(writes, Delete(m.collection(), id)), nil
	}
	if document := e.Document(); document != nil {
		put, err := m.document(id, document)
		if err != nil {
			return nil, err
		}
		return append(writes, Replace(m.collection(), id, put)), nil
	}
	if e.Operation != envelope.Update {
		return nil, Permanent(errors.New("the change carries no document"))
	}
	description := e.UpdateDescription()
	if description == nil {
		if e.gone() {
			return nil, nil // its delete follows
		}
		return nil, Permanent(errors.New("the update carries neither the document nor what changed"))
	}
	truncations, err := m.truncations(description)
	if err != nil {
		return nil, err
	}
	changes, err := m.changes(description)
	if err != nil {
		return nil, err
	}
	// Two updates, because one cannot both shorten an array and set an element of it.
	for _, ops := range [][]Op{truncations, changes} {
		if len(ops) > 0 {
			writes = append(writes, UpdateOne{Collection: m.collection(), ID: id, Ops: ops, InOrder: true})
		}
	}
	return writes, nil
}

// truncations returns operators for the arrays that an update shortened.
func (m Mirror) truncations(description bson.Raw) ([]Op, error) {
	truncated, ok := description.Lookup("truncatedArrays").ArrayOK()
	if !ok {
		return nil, nil
	}
	values, err := truncated.Values()
	if err != nil {
		return nil, Permanent(err)
	}
	var ops []Op
	for _, v := range values {
		array, _ := v.DocumentOK()
		field, hasField := array.Lookup("field").StringValueOK()
		size, hasSize := array.Lookup("newSize").AsInt64OK()
		if !hasField || !hasSize {
			return nil, Permanent(errors.New("truncatedArrays holds something other than {field, newSize}"))
		}
		if m.keeps(field) {
			ops = append(ops, Truncate(field, size))
		}
	}
	return ops, nil
}

// changes returns operators for the fields that an update set and removed. The description's paths
// have dots between their steps, so a field whose name contains a dot cannot be distinguished from
// a path, as MongoDB documents.
func (m Mirror) changes(description bson.Raw) ([]Op, error) {
	var ops []Op
	if updated, ok := description.Lookup("updatedFields").DocumentOK(); ok {
		fields, err := updated.Elements()
		if err != nil {
			return nil, Permanent(err)
		}
		for _, f := range fields {
			if m.keeps(f.Key()) {
				ops = append(ops, Set(f.Key(), f.Value()))
			}
		}
	}
	if removed, ok := description.Lookup("removedFields").ArrayOK(); ok {
		values, err := removed.Values()
		if err != nil {
			return nil, Permanent(err)
		}
		for _, v := range values {
			field, ok := v.StringValueOK()
			if !ok {
				return nil, Permanent(errors.New("removedFields holds something that is not a name"))
			}
			if m.keeps(field) {
				ops = append(ops, Unset(field))
			}
		}
	}
	return ops, nil
}
