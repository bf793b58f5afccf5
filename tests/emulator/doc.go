// Package emulator starts the embedded servers together: MongoDB, Service Bus and Blob storage,
// each on a port of the loopback interface. Each of them alone, in memory and in virtual time, is a
// package below this one.
//
// In a test, one line is enough; the servers end with the test:
//
//	servers := emulator.Start(t, emulator.Options{})
//	client, err := mongo.Connect(options.Client().ApplyURI(servers.Endpoint(emulator.EnvMongo)))
//
// Guaranteed: [New] knows the addresses before anything is served; when [Stack.Run] returns, every
// listener and connection is closed and every goroutine has ended. Not provided: durability. Data
// is kept in memory only, except for what mongo.Server.Save writes.
package emulator
