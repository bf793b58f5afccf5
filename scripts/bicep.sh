#!/usr/bin/env bash
# bicep.sh [FOLDER]: checks the templates with the compiler: build, lint, format, and an evaluation (bicep snapshot) of each set of parameters in
# tests/deploy/snapshots. A warning is an error, and so is a set that is evaluated although it must be refused. With a FOLDER the
# evaluated deployments are kept there, so that those of two versions can be compared. 0.49.2 is what the templates were written for.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bicep=$(command -v bicep || echo "$HOME/.azure/bin/bicep") # the place in which az installs it
if [[ ! -x $bicep ]]; then
  if [[ -n ${REQUIRE_BICEP:-} ]]; then
    echo 'bicep: it is not here, and REQUIRE_BICEP is set' >&2
    exit 1
  fi
  echo 'bicep: it is not here; build, lint, format and snapshots run in CI only'
  exit 0
fi

status=0
failed() { # failed WHAT TEXT
  printf 'bicep: %s\n%s\n' "$1" "$2" >&2
  status=1
}

for template in infra/main.bicep infra/app/*.bicep; do # build resolves every module below
  found=$("$bicep" build "$template" --stdout 2>&1 >/dev/null) && [[ -z $found ]] || failed "build $template" "$found"
  found=$("$bicep" lint "$template" 2>&1) && [[ -z $found ]] || failed "lint $template" "$found"
done
while IFS= read -r template; do
  found=$("$bicep" format "$template" --stdout 2>&1 | diff -u "$template" -) || failed "format $template: bicep format changes it" "$found"
done < <(find infra -name '*.bicep' | sort)

folder=${1:-$(mktemp -d)}
mkdir -p "$folder"
sets=0
for set in tests/deploy/snapshots/*.bicepparam; do
  sets=$((sets + 1))
  snapshot=${set%.bicepparam}.snapshot.json
  expected=$(sed -n 's|^// refused: ||p' "$set")
  group=()
  case ${set##*/} in *app-*) group=(--resource-group rg-prod) ;; esac
  if found=$("$bicep" snapshot "$set" --mode overwrite --location westeurope "${group[@]+"${group[@]}"}" \
    --subscription-id 00000000-0000-0000-0000-000000000001 --tenant-id 00000000-0000-0000-0000-000000000002 2>&1); then
    mv "$snapshot" "$folder/"
    # What fails is a diagnosis in the snapshot as well as an exit code.
    [[ -z $expected ]] || grep -qF "$expected" "$folder/${snapshot##*/}" || failed "$set is not refused" "$expected"
  elif [[ -z $expected ]]; then
    failed "$set is not evaluated" "$found"
  elif [[ $found != *"$expected"* ]]; then
    failed "$set is refused with other words than: $expected" "$found"
  fi
done
echo "bicep: $sets sets of parameters"
exit "$status"
