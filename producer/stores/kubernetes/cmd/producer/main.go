// Command producer is Sluice's producer with the checkpoint store Kubernetes beside those that are
// built in: CHECKPOINT_STORE=kubernetes.
package main

import (
	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/producer/stores/kubernetes"
)

func main() { producer.MainWith(producer.Options{Store: kubernetes.FromEnvironment}) }
