// Package tree is for tests that read files of the repository which are not in their module.
package tree

import "os"

// Env names the variable with a checksum of the working tree, which scripts/test.sh sets.
const Env = "SLUICE_TREE"

// Depend makes the test that calls it depend on the whole tree. The go command keeps the result of
// a test for as long as the files and variables that the test has read are the same, but it does
// not look at files outside of the test's module.
func Depend() { _ = os.Getenv(Env) }
