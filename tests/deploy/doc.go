// Package deploy tests what cannot be run here: the infrastructure, the images, the local composition. Each test holds
// one file against the one that it must agree with: Bicep against the settings in the code, parameters against templates,
// queries against the status that services report, documents against what they describe.
//
// Not tested: that Azure accepts the templates. "bicep build" in CI is the judge of their types; only a deployment is one
// of the rest. What has been checked and what has not is told in infra/README.md.
package deploy
