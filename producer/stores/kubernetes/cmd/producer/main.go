// Command producer is Sluice's producer with one more checkpoint store, Kubernetes, which
// CHECKPOINT_STORE=kubernetes selects.
package main

import (
	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/producer/stores/kubernetes"
)

func main() { producer.MainWith(producer.Options{Store: kubernetes.FromEnvironment}) }
