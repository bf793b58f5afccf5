package mongodb

import (
	"cmp"
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Version is a server's, such as 6.0.9.
type Version struct{ Major, Minor, Patch int }

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// before reports whether v is older than another version.
func (v Version) before(other Version) bool {
	return cmp.Or(cmp.Compare(v.Major, other.Major), cmp.Compare(v.Minor, other.Minor), cmp.Compare(v.Patch, other.Patch)) < 0
}

// ServerVersion asks a deployment for its version. A deployment that only speaks the protocol
// answers with the version of the protocol.
func ServerVersion(ctx context.Context, client *mongo.Client) (Version, error) {
	var reply struct {
		Version []int `bson:"versionArray"`
	}
	if err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&reply); err != nil {
		return Version{}, fmt.Errorf("ask MongoDB for its version: %w", err)
	}
	if len(reply.Version) < 3 {
		return Version{}, fmt.Errorf("ask MongoDB for its version: it has %d numbers", len(reply.Version))
	}
	return Version{reply.Version[0], reply.Version[1], reply.Version[2]}, nil
}

// came holds the version of MongoDB that introduced each optional feature that Sluice uses.
var came = []struct {
	what  string
	since Version
}{
	{"snapshot reads", Version{5, 0, 0}},
	{"pre- and post-images", Version{6, 0, 0}},
	{"the wall time of a change", Version{6, 0, 0}},
	{"splitting changes of more than 16 MB", Version{6, 0, 9}},
}

// oldest is the first version that Sluice supports.
var oldest = Version{4, 4, 0}

// Supported reports whether Sluice supports a version.
func (v Version) Supported() bool { return !v.before(oldest) }

// Lacks lists, for people, the features of later versions that this version lacks, each with the
// version that introduced it.
func (v Version) Lacks() (lacks []string) {
	for _, c := range came {
		if v.before(c.since) {
			lacks = append(lacks, fmt.Sprintf("%s (since %s)", c.what, c.since))
		}
	}
	return lacks
}

// Identity is what a deployment reports about itself in its answer to hello.
type Identity struct {
	SetName string `bson:"setName"` // of a replica set's member
	Msg     string `bson:"msg"`
}

// Sharded reports whether a mongos answered.
func (i Identity) Sharded() bool { return i.Msg == "isdbgrid" }

// Identify asks a deployment which kind it is. Errors are the driver's.
func Identify(ctx context.Context, client *mongo.Client) (identity Identity, err error) {
	ask := func(command string) error {
		return client.Database("admin").RunCommand(ctx, bson.D{{Key: command, Value: 1}}).Decode(&identity)
	}
	// MongoDB before 4.4.2 does not know hello, and a server after 5 may be configured to refuse
	// isMaster.
	if err = ask("hello"); HasCode(err, CommandNotFound) {
		err = ask("isMaster")
	}
	return identity, err //nolint:wrapcheck // callers explain it
}
