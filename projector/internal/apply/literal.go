package apply

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// changedByServers reports whether a replacement by this document would change it: servers put
// their clock into empty timestamps, and refuse names that begin with a dollar, as does the driver.
func changedByServers(document bson.Raw) bool {
	elements, _ := document.Elements()
	for _, e := range elements {
		value := e.Value()
		if t, i, ok := value.TimestampOK(); ok && t == 0 && i == 0 {
			return true
		}
		if strings.HasPrefix(e.Key(), "$") || dollarName(value) != "" {
			return true
		}
	}
	return false
}

// literally returns an update that replaces a whole document by another one, all of whose values
// are literals to the server.
func literally(document any) mongo.Pipeline {
	return mongo.Pipeline{{{Key: "$replaceWith", Value: bson.D{{Key: "$literal", Value: document}}}}}
}
