#!/usr/bin/env bash
# Checks the deployment: the repository's own tests of it always, the Bicep compiler if it is here (scripts/bicep.sh; with
# REQUIRE_BICEP set it must be), the Kusto queries if npm is here, and what kustomize renders of infra/kubernetes.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
status=0

scripts/bicep.sh || status=1

if command -v npm >/dev/null; then
  kusto=tests/deploy/kusto
  # npm ci leaves a copy of the lock file there, written only when it succeeded
  if ! cmp --silent "$kusto/package-lock.json" "$kusto/node_modules/.sluice-lock"; then
    npm --prefix "$kusto" ci --ignore-scripts --loglevel=error &&
      cp "$kusto/package-lock.json" "$kusto/node_modules/.sluice-lock"
  fi
  node "$kusto/check.js" || status=1
else
  echo 'lint-infra: npm is not here; the Kusto queries are not compiled'
fi

# count: the files that these read are in no module that the test cache watches
go test -count=1 ./tests/internal/bicep ./tests/deploy/... || status=1
# A module of its own: the types of Kubernetes, of the Prometheus operator and of KEDA decide about no version of a service.
GOWORK=off go -C tests/deploy/kubernetes mod tidy -diff || status=1
GOWORK=off go -C tests/deploy/kubernetes vet ./... || status=1
GOWORK=off go -C tests/deploy/kubernetes test -count=1 ./... || status=1
exit "$status"
