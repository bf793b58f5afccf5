#!/usr/bin/env bash
# redis.sh: installs Debian's redis-server for the tests of the checkpoint store Redis, with CI=true and as root. Otherwise it
# reports that redis-server is not installed, and succeeds: those tests are then skipped, or fail with CI=true.
set -euo pipefail
! command -v redis-server >/dev/null || exit 0
if [[ ${CI:-} != true || $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
  echo "redis: redis-server is not here, so the checkpoint store Redis is not tested (Debian: apt-get install redis-server)" >&2
  exit 0
fi
apt-get update -qq
# The tests start servers of their own; that of the package would only occupy memory.
RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends redis-server >/dev/null
