package producer

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// clusterTimeout bounds the question of which deployment it is.
const clusterTimeout = 5 * time.Second

// cluster returns the identity that a deployment keeps for itself, which another one with the same databases does not have: that of its
// replica set, or of its sharded cluster. It is empty if the user may not read it, or the deployment keeps none.
func cluster(ctx context.Context, client *mongo.Client) string {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	var set struct {
		Settings struct {
			ReplicaSetID bson.ObjectID `bson:"replicaSetId"`
		} `bson:"settings"`
	}
	err := client.Database("local").Collection("system.replset").FindOne(ctx, bson.D{}).Decode(&set)
	if id := set.Settings.ReplicaSetID; err == nil && !id.IsZero() {
		return "replica set " + id.Hex()
	}
	var version struct {
		ClusterID bson.ObjectID `bson:"clusterId"`
	}
	err = client.Database("config").Collection("version").FindOne(ctx, bson.D{}).Decode(&version)
	if err == nil && !version.ClusterID.IsZero() {
		return "cluster " + version.ClusterID.Hex()
	}
	return ""
}
