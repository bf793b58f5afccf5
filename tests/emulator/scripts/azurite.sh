#!/usr/bin/env bash
# Installs Azurite from its lock file for tests/emulator/azurite, unless that version is
# there already. Without npm it reports that and succeeds: the tests that need
# Azurite are then skipped, or fail with CI=true.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

if ! command -v npm >/dev/null; then
  echo "azurite: npm is not here, so Azurite is not installed and its tests are skipped" >&2
  exit 0
fi
scripts/node-modules.sh tests/emulator/azurite
