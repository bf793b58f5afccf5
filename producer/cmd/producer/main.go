// Command producer publishes the changes of a MongoDB collection to Azure Service Bus, and has the
// operator's commands for a stream: `producer help` lists them. Environment variables configure it:
// see docs/configure.md.
package main

import "github.com/sluice-cdc/sluice/producer"

func main() { producer.Main() }
