// Package world runs the services in the test's own process with the embedded Service Bus, MongoDB
// and Blob storage, in memory and in virtual time: hours pass in milliseconds, and faults happen at
// the exact instant.
//
// A test gets one [World] and starts in it as many producers and projectors as it needs, each with
// connections of its own:
//
//	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
//		a := w.StartProducer("a", nil)
//		w.Leads("a")
//		p := w.StartProjector(nil)
//		a.BusPlug.Pull() // only a loses Service Bus
//		w.InsertMany(100, 5)
//		w.Pass(time.Second)
//		a.BusPlug.PlugIn()
//		w.Published()
//		w.Completed(100)
//		a.End()
//		_, err := p.End()
//		require.NoError(t, err)
//	})
//
// The files: world.go has the servers, entities.go the entities of Service Bus, wait.go what waits
// for the servers; clients.go connects clients, plug.go breaks connections, faults.go injects
// faults into MongoDB, election.go simulates elections; producer.go and projector.go run the
// services, operator.go their commands; source.go commits events, counting.go has projections that
// count them, and judge.go checks the result; recorder.go keeps the logs.
//
// Not here: the services over TCP and in real time (tests/e2e/sockets runs them on the stack,
// tests/e2e/live under faults).
package world
