#!/usr/bin/env bash
# Installs what the peers of "make bench PEERS=1" need, by their lock files, outside the repository: every checkout finds it. A peer
# whose language or registry is not here is left out, with a message.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/sluice

node() {
  ../../../scripts/node-modules.sh node
}

python() {
  local venv
  venv=$cache/python-peer-$({ python3 --version && cat python/requirements.txt; } | cksum | cut -d ' ' -f 1)
  if [[ ! -f $venv/.complete ]]; then
    rm -rf "$venv" && python3 -m venv "$venv" &&
      "$venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: --requirement python/requirements.txt &&
      touch "$venv/.complete" || return 1
  fi
  printf '%s\n' "$venv/bin/python" >python/.interpreter
}

java() {
  local lib
  lib=$cache/java-peer-$({ javac -version && cat java/pom.xml java/*.java; } | cksum | cut -d ' ' -f 1)
  if [[ ! -f $lib/.complete ]]; then
    mvn -q -B -f java/pom.xml dependency:copy-dependencies -DoutputDirectory="$lib" &&
      javac -cp "$lib/*" -d "$lib/classes" java/*.java && touch "$lib/.complete" || return 1
  fi
  printf '%s\n' "$lib/classes:$lib/*" >java/.classpath
}

for peer in node python java; do
  "$peer" || echo "peers: what $peer needs could not be installed" >&2
done
