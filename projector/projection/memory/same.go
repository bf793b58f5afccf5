package memory

import (
	"bytes"
	"fmt"
	"reflect"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// Same compares two events' writes by value. It is not enough to compare BSON: a time in it has
// milliseconds, and two readings of a clock can fall into the same one.
func Same(a, b []projection.Write) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	one, err := bson.Marshal(bson.D{{Key: "v", Value: a}})
	other, otherErr := bson.Marshal(bson.D{{Key: "v", Value: b}})
	return err == nil && otherErr == nil && bytes.Equal(one, other) && fmt.Sprintf("%#v", a) == fmt.Sprintf("%#v", b)
}
