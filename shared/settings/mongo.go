package settings

import (
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// CheckMongoURI is nil for a MongoDB connection string. Otherwise the error names the setting and not what is wrong with
// its value: the driver's own words may quote the password. A mongodb+srv name is resolved when connecting, not here, so
// that a service starts while its DNS is away.
func CheckMongoURI(setting, uri string) error {
	if uri == "" {
		return fmt.Errorf("%s: is required and not set", setting)
	}
	if strings.HasPrefix(uri, "mongodb+srv://") || options.Client().ApplyURI(uri).Validate() == nil {
		return nil
	}
	return fmt.Errorf("%s: is not a MongoDB connection string (mongodb://… or mongodb+srv://…)", setting)
}
