package build

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/mongodb"
)

// View is the view by which readers read one collection of a projection, whichever version of it
// the view shows: it has the collection's name in version 1 with "_current" behind it.
type View struct {
	Name string
	// Collection is what the view shows if it shows the version that it was made for.
	Collection string
	pipeline   bson.A
}

// ErrNotDeclared is a projection without views.
var ErrNotDeclared = errors.New("the projection does not declare its collections, so no views can show them: implement projection.Stored")

// ErrTaken is a collection that has the name of a view.
var ErrTaken = errors.New("is a collection, and should be a view that readers use: rename it")

// Views returns the views that show a version of a projection. Errors: [ErrNotDeclared].
func Views(p projection.Projection) ([]View, error) {
	collections, declared := projection.Collections(p)
	if !declared {
		return nil, ErrNotDeclared
	}
	suffix := strings.TrimPrefix(p.Name(), projection.Base(p).Name())
	one, _ := p.(projection.OneDocument)
	all := make([]View, len(collections))
	for i, c := range collections {
		all[i] = View{Name: strings.TrimSuffix(c.Name, suffix) + "_current", Collection: c.Name, pipeline: bson.A{}}
		if one != nil && c.Name == one.Collection() {
			all[i].pipeline = apply.WithoutStubs()
		}
	}
	return all, nil
}

// Shown returns the collection that each view shows, by the name of the view; a view that does not
// exist is missing. Errors: [ErrTaken], and those of the driver.
func Shown(ctx context.Context, database *mongo.Database, all []View) (map[string]string, error) {
	names := make(bson.A, len(all))
	for i, v := range all {
		names[i] = v.Name
	}
	found, err := database.ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: names}}}})
	if err != nil {
		return nil, fmt.Errorf("list the views of %s: %w", database.Name(), err)
	}
	shown := make(map[string]string, len(found))
	for _, c := range found {
		if c.Type != "view" {
			return nil, fmt.Errorf("%s.%s %w", database.Name(), c.Name, ErrTaken)
		}
		shown[c.Name] = c.Options.Lookup("viewOn").StringValue()
	}
	return shown, nil
}

// Show makes the view show its collection, by one command. It creates a view that does not exist.
func Show(ctx context.Context, database *mongo.Database, v View) error {
	definition := bson.D{{Key: "viewOn", Value: v.Collection}, {Key: "pipeline", Value: v.pipeline}}
	err := database.RunCommand(ctx, append(bson.D{{Key: "collMod", Value: v.Name}}, definition...)).Err()
	if mongodb.HasCode(err, mongodb.NamespaceNotFound) {
		err = database.RunCommand(ctx, append(bson.D{{Key: "create", Value: v.Name}}, definition...)).Err()
	}
	switch {
	case err == nil:
		return nil
	case mongodb.HasCode(err, mongodb.Unauthorized, mongodb.AtlasError):
		return fmt.Errorf("have %s show %s: %w: the user needs the role dbAdmin on %s, to change views", v.Name, v.Collection, err, database.Name())
	}
	return fmt.Errorf("have %s show %s: %w", v.Name, v.Collection, err)
}
