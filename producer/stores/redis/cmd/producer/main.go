// Command producer is Sluice's producer with one more checkpoint store, Redis, which
// CHECKPOINT_STORE=redis selects. CHECKPOINT_REDIS_URL is its address.
package main

import (
	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/producer/stores/redis"
)

func main() { producer.MainWith(producer.Options{Store: redis.FromEnvironment}) }
