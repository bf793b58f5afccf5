// Package modules tests what users of the repository's modules get: the modules as a module proxy
// serves them, in an empty folder outside the repository.
package modules
