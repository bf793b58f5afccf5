// Package modules describes the Go modules of this repository, and packs them as a module proxy
// serves them: the content of the working tree, under a version of its own, so that the go command
// treats it as a release.
//
// Guaranteed: the version is derived from the content of the modules, so that the go command's
// cache never has other content under it; a module is packed by the rules of golang.org/x/mod/zip,
// and gets the repository's licence if it has none, as the go command does for a module below the
// root of a repository.
package modules

// Base is the path of the repository. A module's path is Base followed by its folder.
const Base = "github.com/sluice-cdc/sluice"

// Released returns the folders of the modules that have versions, each after those that it
// requires.
func Released() []string {
	return []string{"shared", "tests/emulator", "producer", "producer/stores/kubernetes", "producer/stores/redis", "projector"}
}

// All returns the folders of the released modules, of the tests, which are never imported, and of
// the examples, which require a release as their users do.
func All() []string {
	return append(Released(), "tests", "tests/emulator/conformance", "projector/examples/customer-totals")
}

// Path returns the path of the module in a folder of the repository.
func Path(folder string) string { return Base + "/" + folder }
