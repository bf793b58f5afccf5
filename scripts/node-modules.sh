#!/usr/bin/env bash
# node-modules.sh FOLDER: installs what FOLDER/package-lock.json names, and nothing else, and links it as FOLDER/node_modules.
#
# It is kept outside the repository, by the hash of the lock file and of Node.js's version: every checkout finds it, and only the
# first waits for the registry. Nothing that was downloaded runs here. Fails when npm does, and then leaves nothing.
set -euo pipefail
cd "$1"

sum=$({ node --version && cat package-lock.json; } | cksum | cut -d ' ' -f 1)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sluice
kept=$cache/$(basename "$PWD")-$sum
if [[ ! -d $kept ]]; then
  echo "node-modules: installing from $1/package-lock.json"
  mkdir -p "$cache"
  new=$(mktemp -d "$kept.XXXXXX")
  trap 'rm -rf "$new"' EXIT
  cp package.json package-lock.json "$new"
  npm --prefix "$new" ci --ignore-scripts --no-audit --no-fund --loglevel=error
  [[ -d $kept ]] || mv "$new" "$kept" # whole, in one step: another checkout may be at it, too
fi
[[ $(readlink node_modules || true) == "$kept/node_modules" ]] || { rm -rf node_modules && ln -s "$kept/node_modules" node_modules; }
