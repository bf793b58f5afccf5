// Package workload supplies the events of a run and writes them to the source collection.
//
// Events come from a file of JSON lines ([ReadFile]) or from a seeded generator of orders ([Orders]); [Loader] inserts
// them in order, at a rate or as fast as it goes. An event's order within its aggregate is its version and nothing
// else: times repeat, and content is no identity.
package workload
