package query

import (
	"math/rand/v2"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// compileSample reads {$sample: {size: n}}: n different documents at random; all, if there are no
// more.
func compileSample(arg any) (Stage, error) {
	d, ok := arg.(bson.D)
	if !ok {
		return Stage{}, mongoerr.New(28745, "the $sample stage specification must be an object")
	}
	size := int64(-1)
	for _, f := range d {
		if f.Key != "size" {
			return Stage{}, mongoerr.New(28748, "unrecognized option to $sample: %s", f.Key)
		}
		n, ok := value.AsInt(f.Value)
		if !ok {
			return Stage{}, mongoerr.New(28746, "size argument to $sample must be a number")
		}
		if n < 1 {
			return Stage{}, mongoerr.New(28747, "size argument to $sample must be a positive integer")
		}
		size = n
	}
	if size < 0 {
		return Stage{}, mongoerr.New(28749, "$sample stage must specify a size")
	}
	return Stage{All: func(docs []bson.D) ([]bson.D, error) {
		rand.Shuffle(len(docs), func(i, j int) { docs[i], docs[j] = docs[j], docs[i] })
		return docs[:min(size, int64(len(docs)))], nil
	}}, nil
}
