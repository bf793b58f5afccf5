package projection_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// The command returns a version, and the query waits for it: the user sees the order that was just
// placed, without a delay for anyone else.
func ExampleWait() {
	query := func(ctx context.Context, readModel *mongo.Database, order string, version int64) (bson.Raw, error) {
		waiting, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		effect, err := projection.Wait(waiting, readModel, projection.Awaited{Projection: "orders", Aggregate: order, Version: version})
		if _, notYet := errors.AsType[*projection.NotYetError](err); notYet {
			fmt.Println("show what there is:", err)
			effect.Collection = "orders"
		} else if err != nil {
			return nil, err
		}
		return readModel.Collection(effect.Collection).FindOne(ctx, bson.D{{Key: "_id", Value: order}}).Raw()
	}
	_ = query
}
