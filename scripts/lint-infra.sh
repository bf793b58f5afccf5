#!/usr/bin/env bash
# Checks the deployment: the repository's own tests of it always, the Bicep
# compiler and linter where they are. With REQUIRE_BICEP set they must be.
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
    # build resolves every module below; a warning fails like an error does
    if [[ ${bicep[0]} == az ]]; then file=(--file "$template"); else file=("$template"); fi
    for what in build lint; do
      arguments=("$what" "${file[@]}")
      [[ $what == lint ]] || arguments+=(--stdout)
      if ! found=$("${bicep[@]}" "${arguments[@]}" 2>&1 >/dev/null) || [[ $found == *Warning* ]]; then
        printf 'lint-infra: %s %s\n%s\n' "$what" "$template" "$found" >&2
        status=1
      fi
    done
  done
elif [[ -n ${REQUIRE_BICEP:-} ]]; then
  echo 'lint-infra: bicep is not here, and REQUIRE_BICEP is set' >&2
  status=1
else
  echo 'lint-infra: bicep is not here; its build and lint run in CI only'
fi

go test ./tests/internal/bicep ./tests/deploy/... || status=1
exit "$status"
