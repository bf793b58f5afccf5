// Command customer-totals is a projector with a projection of its own.
package main

import "github.com/sluice-cdc/sluice/projector"

func main() { projector.Main(CustomerTotals{}) }
