// Command projector is a projector with a projection of its own, which writes in transactions: what users build who have one.
package main

import (
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/tests/internal/ledger"
)

func main() { projector.Main(ledger.Projection{}) }
