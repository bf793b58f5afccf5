// Package deploy tests what cannot be run here: the infrastructure, the images, the local
// composition. Each test compares one file with another that it must agree with: Bicep with the
// settings in the code, parameters with templates, queries with the status that services report,
// documents with what they describe.
//
// Not tested: that Azure accepts the templates. "bicep build" in CI checks their types; only a
// deployment checks the rest. infra/README.md lists what has been checked and what has not.
package deploy
