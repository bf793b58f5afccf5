// Command producer is Sluice's producer with the checkpoint store Redis beside those that are built
// in: CHECKPOINT_STORE=redis and CHECKPOINT_REDIS_URL.
package main

import (
	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/producer/stores/redis"
)

func main() { producer.MainWith(producer.Options{Store: redis.FromEnvironment}) }
