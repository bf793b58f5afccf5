// Package modules has the tests of what others get: the repository's modules, as a module proxy serves them, in an empty
// folder outside of it.
package modules
