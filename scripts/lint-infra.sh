#!/usr/bin/env bash
# Checks the deployment: the repository's own tests of it always, the Bicep
# compiler and linter where they are (with REQUIRE_BICEP set they must be), and
# the Kusto queries where npm is.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
status=0

bicep=()
if command -v bicep >/dev/null; then
  bicep=(bicep)
elif command -v az >/dev/null && az bicep version >/dev/null 2>&1; then
  bicep=(az bicep)
fi
if ((${#bicep[@]})); then
  for template in infra/main.bicep infra/app/*.bicep; do
    # build resolves every module below; infra/bicepconfig.json says which
    # findings of the linter are errors, the others are shown
    if [[ ${bicep[0]} == az ]]; then file=(--file "$template"); else file=("$template"); fi
    for what in build lint; do
      arguments=("$what" "${file[@]}")
      [[ $what == lint ]] || arguments+=(--stdout)
      failed=
      found=$("${bicep[@]}" "${arguments[@]}" 2>&1 >/dev/null) || failed=' FAILED'
      [[ -z $failed ]] || status=1
      [[ -z $failed$found ]] || printf 'lint-infra: %s %s%s\n%s\n' "$what" "$template" "$failed" "$found" >&2
    done
  done
elif [[ -n ${REQUIRE_BICEP:-} ]]; then
  echo 'lint-infra: bicep is not here, and REQUIRE_BICEP is set' >&2
  status=1
else
  echo 'lint-infra: bicep is not here; its build and lint run in CI only'
fi

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
exit "$status"
