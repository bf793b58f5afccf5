#!/usr/bin/env bash
# chromium.sh: installs Debian's Chromium for the tests of the console, with CI=true and as root. Otherwise it reports that
# Chromium is not installed, and succeeds: those tests are then skipped, or fail with CI=true. Also installs axe-core, which checks
# the pages for accessibility, if npm is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
if command -v npm >/dev/null; then
  scripts/node-modules.sh tests/e2e/console/axe
else
  echo "chromium: npm is not here, so axe-core is not installed and the console's pages are not checked with it" >&2
fi
! command -v chromium >/dev/null && ! command -v google-chrome >/dev/null || exit 0
if [[ ${CI:-} != true || $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
  echo "chromium: it is not here, so the console is not tested in a browser (Debian: apt-get install chromium)" >&2
  exit 0
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
