package storetest_test

import (
	"testing"

	"github.com/sluice-cdc/sluice/producer/store"
	"github.com/sluice-cdc/sluice/producer/store/storetest"
)

func TestTheStoreInMemory(t *testing.T) {
	var m storetest.Memory
	storetest.Test(t, func(*testing.T) store.Store { return &m })
}
