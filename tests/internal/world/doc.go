// Package world runs the services in the test's own process against the embedded Service Bus, MongoDB and Blob storage, in memory
// and in virtual time: hours pass in milliseconds, and what is pulled, stalled or cut is so to the instant.
//
// A test gets one [World] and starts in it as many producers and projectors as it likes, each on connections of its own:
//
//	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
//		a := w.StartProducer("a", nil)
//		w.Leads("a")
//		p := w.StartProjector(nil)
//		a.BusPlug.Pull() // a's way to Service Bus, and nobody else's
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
// The files: world.go has the servers, entities.go what is in Service Bus, wait.go what waits for them; ways.go how clients reach
// them, plug.go what breaks on the way, faults.go what MongoDB does wrong when told to, election.go what a client must bear
// meanwhile; producer.go and projector.go the services, operator.go their commands; source.go and judge.go what is committed, and
// what is held against it; recorder.go the logs.
//
// Not here: the services over TCP and in real time (tests/e2e/pipeline has them on the stack, tests/e2e/live as processes).
package world
