// Package workload supplies the events of a run and writes them to the source collection.
//
// Events come from a file of JSON lines ([ReadFile]) or from a seeded generator of orders
// ([Orders]); [Loader] inserts them in order, at a rate or as fast as possible. The order of events
// within an aggregate is that of their versions: times repeat, and content does not identify an
// event.
package workload
