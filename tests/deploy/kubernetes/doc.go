// Package kubernetes renders infra/kubernetes and checks the objects against the types of
// Kubernetes, of the Prometheus operator and of KEDA. It is a module of its own, outside the
// workspace, so that those modules decide about no version of what the services use.
// scripts/lint-infra.sh runs it; its modules are loaded once, and a check needs no network.
//
// The numbers that infra/kubernetes has in common with the templates of Container Apps are compared
// in the folder above.
//
// Not tested: that an API server accepts the objects, and that they do what they should in a
// cluster.
package kubernetes
