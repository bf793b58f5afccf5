#!/usr/bin/env bash
# chromium.sh: installs Debian's Chromium for the tests of the console, with CI=true and as root. Otherwise it reports that
# Chromium is not installed, and succeeds: those tests are then skipped, or fail with CI=true.
set -euo pipefail
! command -v chromium >/dev/null && ! command -v google-chrome >/dev/null || exit 0
if [[ ${CI:-} != true || $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
  echo "chromium: it is not here, so the console is not tested in a browser (Debian: apt-get install chromium)" >&2
  exit 0
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
