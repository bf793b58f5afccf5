package changes

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/mongodb"
)

// ErrSnapshotRefused reports settings or a source with which a snapshot would lose changes, or
// count them twice.
var ErrSnapshotRefused = errors.New("no snapshot can be published")

// CheckBackfill reports why settings permit no snapshot. lost requires that a snapshot can replace
// history that was lost. Errors: [ErrSnapshotRefused].
func (c Config) CheckBackfill(lost bool) error {
	m := c.Mapping
	onlyInserts := len(m.Operations) == 1 && m.Operations[0] == envelope.Insert
	filters := !slices.ContainsFunc(c.Pipeline, func(stage bson.D) bool { return stage[0].Key != "$match" })
	switch {
	case !slices.Contains(m.Operations, envelope.Insert):
		return fmt.Errorf("%w: OPERATIONS has no insert, and a snapshot consists of inserts", ErrSnapshotRefused)
	case m.pathInID() && (m.AggregatePath == "_id" || !onlyInserts):
		return nil
	case !onlyInserts:
		return fmt.Errorf("%w: a document may be part of an aggregate whose later documents come first. Set OPERATIONS=insert, for documents that are "+
			"never changed; or AGGREGATE_ID_PATH=_id, so that each document is an aggregate of its own (in new read models)", ErrSnapshotRefused)
	case !filters:
		return fmt.Errorf("%w: PIPELINE may change the documents, by whose AGGREGATE_ID_PATH and VERSION_PATH the snapshot is put in order. Use no other "+
			"stages than $match", ErrSnapshotRefused)
	case lost && m.VersionPath == "":
		return fmt.Errorf("%w: without VERSION_PATH, readers cannot recognise the documents that they have seen", ErrSnapshotRefused)
	}
	return nil
}

// CheckAggregates reports why settings permit no snapshot of single aggregates. Errors:
// [ErrSnapshotRefused].
func (c Config) CheckAggregates() error {
	if keys := newBackfillSource(nil, &c, "").keys; keys[0] != c.Mapping.AggregatePath {
		return fmt.Errorf("%w: AGGREGATE_ID_PATH leads into _id, and no index finds the documents of an aggregate. Start a snapshot of all documents, "+
			"without --ids", ErrSnapshotRefused)
	}
	return nil
}

// newBackfillSource returns the source of a collection's snapshots.
func newBackfillSource(collection *mongo.Collection, config *Config, settings string) *backfillSource {
	m := config.Mapping
	b := &backfillSource{collection: collection, config: config, keys: []string{"_id"}}
	onlyInserts := len(m.Operations) == 1 && m.Operations[0] == envelope.Insert
	if m.AggregatePath != "_id" && (onlyInserts || !m.pathInID()) {
		b.keys = []string{m.AggregatePath, "_id"}
		if m.VersionPath != "" && m.VersionPath != m.AggregatePath {
			b.keys = slices.Insert(b.keys, 1, m.VersionPath)
		}
	}
	b.versions = m.VersionPath != "" && onlyInserts
	rows := fmt.Appendf(nil, "%s %q %q %q %v", settings, m.AggregatePath, m.VersionPath, b.keys, m.Operations)
	b.settings = fmt.Sprintf("%x", sha256.Sum256(rows))
	return b
}

// check reports why no snapshot of the collection can be published. Errors: [ErrSnapshotRefused],
// and those of the server.
func (b *backfillSource) check(ctx context.Context) error {
	if err := b.config.CheckBackfill(false); err != nil {
		return &permanentError{err}
	}
	database := b.collection.Database()
	version, err := mongodb.ServerVersion(ctx, database.Client())
	if err != nil {
		return err
	}
	if version.Major < 5 {
		return &permanentError{fmt.Errorf("%w: the source is MongoDB %s, which cannot read outside of a transaction as of a cluster time: it needs 5.0 or later",
			ErrSnapshotRefused, version)}
	}
	all, err := database.ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: b.collection.Name()}})
	if err != nil {
		return fmt.Errorf("look up the collection: %w", err)
	}
	for _, specification := range all {
		switch {
		case specification.Type == "view", specification.Type == "timeseries":
			return &permanentError{fmt.Errorf("%w: %s is a %s", ErrSnapshotRefused, b.collection.Name(), specification.Type)}
		case specification.Options.Lookup("collation").Type != 0:
			return &permanentError{fmt.Errorf("%w: %s has a collation, by which different ids may be equal", ErrSnapshotRefused, b.collection.Name())}
		}
	}
	if len(all) == 0 || len(b.keys) == 1 {
		return nil // there is nothing to read, or the index on _id is always there
	}
	return b.checkIndex(ctx)
}

// checkIndex requires the index by which the snapshot reads.
func (b *backfillSource) checkIndex(ctx context.Context) error {
	cursor, err := b.collection.Indexes().List(ctx)
	if err != nil {
		return fmt.Errorf("list the indexes of the collection: %w", err)
	}
	var indexes []bson.Raw
	if err := cursor.All(ctx, &indexes); err != nil {
		return fmt.Errorf("list the indexes of the collection: %w", err)
	}
	if slices.ContainsFunc(indexes, b.isIndex) {
		return nil
	}
	return &permanentError{fmt.Errorf("%w: the collection has no index by which to read it in order. Create it: db.%s.createIndex({%s: 1})",
		ErrSnapshotRefused, b.collection.Name(), `"`+strings.Join(b.keys, `": 1, "`)+`"`)}
}

// isIndex reports whether an index holds all documents in the order of the keys.
func (b *backfillSource) isIndex(index bson.Raw) bool {
	keys, _ := index.Lookup("key").DocumentOK()
	elements, _ := keys.Elements()
	ordered := slices.EqualFunc(elements, b.keys, func(e bson.RawElement, key string) bool {
		n, ok := e.Value().AsInt64OK()
		return e.Key() == key && ok && n == 1
	})
	for _, option := range []string{"sparse", "partialFilterExpression", "collation", "hidden"} {
		v := index.Lookup(option)
		no, isBool := v.BooleanOK()
		ordered = ordered && (v.Type == 0 || isBool && !no)
	}
	return ordered
}
