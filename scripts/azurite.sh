#!/usr/bin/env bash
# Installs Azurite from its lock file into tests/azurite/node_modules, unless
# that version is there already. Without npm it says so and succeeds: the tests
# that need Azurite then skip, or fail where CI=true.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../tests/azurite"

if ! command -v npm >/dev/null; then
  echo "azurite: npm is not here, so Azurite is not installed and its tests are skipped" >&2
  exit 0
fi

# npm ci leaves a copy of the lock file's hash here, written only when it succeeded.
stamp=node_modules/.sluice-lock
lock=$(cksum <package-lock.json)
if [[ -f $stamp && $(<"$stamp") == "$lock" ]]; then
  exit 0
fi

echo "azurite: installing from tests/azurite/package-lock.json"
# Its one install script only prints versions; nothing downloaded runs here.
npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
printf '%s' "$lock" >"$stamp"
