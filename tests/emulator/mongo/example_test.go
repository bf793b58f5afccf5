package mongo_test

import (
	"fmt"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// A server acts as a version of MongoDB. Clients connect to it with the URI of its listener.
func ExampleParseVersion() {
	version, err := mongo.ParseVersion("6.0")
	if err != nil {
		fmt.Println(err)
		return
	}
	server := mongo.New(mongo.Options{Version: version})
	fmt.Println(version, server.URI("127.0.0.1:27017"))

	_, err = mongo.ParseVersion("3.6")
	fmt.Println(err)
	// Output:
	// [6 0 27] mongodb://127.0.0.1:27017/?replicaSet=rs0
	// "3.6" is not one of 4.4, 5.0, 6.0, 7.0, 8.0
}
