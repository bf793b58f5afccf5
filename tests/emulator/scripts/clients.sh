#!/usr/bin/env bash
# Installs the JavaScript, Python and, with CLIENTS=all, Java clients of Service Bus, MongoDB and Blob storage that conformance/clients runs, from their lock
# files, unless they are there already. Without npm, python3 or a registry it reports that and succeeds: the tests of that language
# are then skipped, and JavaScript's fail with CI=true.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../conformance/clients"

javascript() {
  if ! command -v npm >/dev/null; then
    echo "clients: npm is not here, so the JavaScript clients are not installed" >&2
    return
  fi
  ../../../../scripts/node-modules.sh javascript || {
    echo "clients: npm could not install the JavaScript clients" >&2
    [[ ${CI:-} != true ]]
  }
}

# The environment is outside the repository, by the hash of what is in it: every checkout finds it.
python() {
  if ! command -v python3 >/dev/null; then
    echo "clients: python3 is not here, so the Python clients are not installed" >&2
    return
  fi
  local sum venv
  sum=$({ python3 --version && cat python/requirements*.txt; } | cksum | cut -d ' ' -f 1)
  venv=${XDG_CACHE_HOME:-$HOME/.cache}/sluice/python-clients-$sum
  if [[ ! -f $venv/.complete ]]; then
    echo "clients: installing from tests/emulator/conformance/clients/python/requirements.txt"
    if ! { rm -rf "$venv" && python3 -m venv "$venv" &&
      "$venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: --requirement python/requirements.txt &&
      touch "$venv/.complete"; }; then
      echo "clients: the Python clients could not be installed, so their tests are skipped" >&2
      rm -f python/.interpreter python/.proton
      return
    fi
    # Its wheels are not for every Python, and the others do without it.
    if "$venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: --requirement python/requirements-proton.txt; then
      touch "$venv/.proton"
    else
      echo "clients: Qpid Proton could not be installed, so its tests are skipped" >&2
    fi
  fi
  printf '%s\n' "$venv/bin/python" >python/.interpreter
  if [[ -f $venv/.proton ]]; then printf '%s\n' "$venv/bin/python" >python/.proton; else rm -f python/.proton; fi
}

# With CLIENTS=all. Outside the repository, like Python's.
java() {
  if ! command -v javac >/dev/null || ! command -v mvn >/dev/null; then
    echo "clients: javac and mvn are not here, so the Java clients are not installed" >&2
    return
  fi
  local lib
  lib=${XDG_CACHE_HOME:-$HOME/.cache}/sluice/java-clients-$(cksum <java/pom.xml | cut -d ' ' -f 1)
  if [[ ! -f $lib/.complete ]]; then
    echo "clients: installing from tests/emulator/conformance/clients/java/pom.xml"
    if ! { mvn -q -B -f java/pom.xml dependency:copy-dependencies -DoutputDirectory="$lib" && touch "$lib/.complete"; }; then
      echo "clients: the Java clients could not be installed, so their tests are skipped" >&2
      rm -f java/.classpath
      return
    fi
  fi
  printf '%s\n' "$lib" >java/.classpath
}

# With CLIENTS=all: it brings 460 packages.
mongosh() {
  if ! command -v npm >/dev/null; then return; fi # javascript has reported it
  ../../../../scripts/node-modules.sh mongosh || echo "clients: npm could not install mongosh, so its test is skipped" >&2
}

javascript
python
if [[ ${CLIENTS:-} == all ]]; then
  java
  mongosh
fi
