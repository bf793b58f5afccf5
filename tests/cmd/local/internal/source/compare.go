package source

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/projector/projection/memory"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/internal/history"
)

const (
	// page is how many documents are read at once.
	page = 200
	// lookAgain is the time between two reads of a document that differs, whose change may be in
	// flight.
	lookAgain = 100 * time.Millisecond
)

// Verdict is what a comparison found.
type Verdict struct {
	history.Comparison
	// Moving counts the documents that kept changing while they were read: they are not compared.
	Moving int
	// Gone counts the documents that went with a collection that was dropped, renamed or replaced:
	// they are not compared, because no change event reports it and the mirror keeps their copies.
	Gone int
	// All is false if more documents changed than are remembered.
	All bool
}

// Compare compares every document that has changed with its copy. It reads documents that differ
// again for as long as patience; the source may keep changing.
func (s *Source) Compare(ctx context.Context, copied *mongo.Collection, patience time.Duration) (v Verdict, err error) {
	pending, lost, all := s.changes.ids()
	v.Gone = lost
	began := time.Now()
	expected, actual := &history.Documents{}, &history.Documents{}
	gone := 0 // on both sides
	for {
		last := len(pending) == 0 || time.Since(began) > patience
		var differ []bson.RawValue
		for ids := range slices.Chunk(pending, page) {
			theirs, err := read(ctx, s.Collection, ids)
			if err != nil {
				return v, err
			}
			ours, err := read(ctx, copied, ids)
			if err != nil {
				return v, err
			}
			for _, id := range ids {
				key := Text(id)
				switch same := bytes.Equal(theirs[key], ours[key]); {
				case !same && !last:
					differ = append(differ, id)
				case !same && s.changes.since(id, began):
					v.Moving++
				case theirs[key] == nil && ours[key] == nil:
					gone++
				default:
					put(expected, key, theirs[key])
					put(actual, key, ours[key])
				}
			}
		}
		if last {
			break
		}
		if pending = differ; len(pending) > 0 {
			if err := retry.Sleep(ctx, lookAgain); err != nil {
				return v, err
			}
		}
	}
	how := make(map[string]bson.RawValue)
	for _, id := range pending {
		how[Text(id)] = id
	}
	explain := func(key string) string { return Explain(ctx, s.Collection, copied, how[key]) }
	v.Comparison, v.All = history.CompareDocuments(expected, actual, explain), all
	v.Aggregates += gone
	v.Right += gone
	return v, nil
}

// Explain describes the fields in which a copied document differs from its source, with types if
// the values have the same text.
func Explain(ctx context.Context, theirs, ours *mongo.Collection, id bson.RawValue) string {
	var want, got bson.D
	byID := bson.D{{Key: "_id", Value: id}}
	if err := errors.Join(theirs.FindOne(ctx, byID).Decode(&want), ours.FindOne(ctx, byID).Decode(&got)); err != nil {
		return "differs from its source"
	}
	const most = 3
	differences := memory.Diff(want, got)
	switch n := len(differences); {
	case n == 0:
		return "differs from its source in the order of its fields"
	case n > most:
		differences = append(differences[:most], fmt.Sprintf("and %d more", n-most))
	}
	return "differs from its source: " + strings.Join(differences, "; ")
}

func put(d *history.Documents, key string, document bson.Raw) {
	if document != nil {
		d.Add(key, key, sha256.Sum256(document))
	}
}

func read(ctx context.Context, c *mongo.Collection, ids []bson.RawValue) (found map[string]bson.Raw, err error) {
	cursor, err := c.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}})
	if err != nil {
		return nil, &unreadable{c.Name(), err}
	}
	defer func() { err = errors.Join(err, cursor.Close(context.WithoutCancel(ctx))) }()
	found = map[string]bson.Raw{}
	for cursor.Next(ctx) {
		found[Text(cursor.Current.Lookup("_id"))] = slices.Clone(cursor.Current)
	}
	if err := cursor.Err(); err != nil {
		return nil, &unreadable{c.Name(), err}
	}
	return found, nil
}

// unreadable is a collection that could not be read, in words that say why.
type unreadable struct {
	collection string
	err        error
}

func (u *unreadable) Error() string { return fmt.Sprintf("read %s: %s", u.collection, concise(u.err)) }
func (u *unreadable) Unwrap() error { return u.err }

// Text returns a text that is unique to an _id, and readable if it has a usual type.
func Text(id bson.RawValue) string {
	if t, ok := envelope.Text(id); ok {
		return fmt.Sprintf("%s %s", id.Type, t)
	}
	return id.String()
}
