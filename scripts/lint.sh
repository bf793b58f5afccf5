#!/usr/bin/env bash
# Checks everything that is not a test, for the modules named, and goes on after
# a failure so that one run reports everything. Exits 1 if anything was found.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
modules=("$@")

failed=()
check() { # check NAME COMMAND...: runs it and remembers a failure
  local name=$1
  shift
  local begin=$SECONDS
  if "$@"; then
    printf 'lint: %-14s ok (%ds)\n' "$name" $((SECONDS - begin))
  else
    printf 'lint: %-14s FAILED (%ds)\n' "$name" $((SECONDS - begin))
    failed+=("$name")
  fi
}

tools() { GOWORK=off CGO_ENABLED=1 go -C scripts/tools build -o ../../bin/ tool; } # vale parses with C

# Errexit is off in what "check" calls, so each failure is handed on by hand.
formatted() {
  local files
  files=$(bin/gofumpt -l "${modules[@]}") || return 1
  [[ -z $files ]] || {
    printf 'not formatted by gofumpt (make fmt):\n%s\n' "$files"
    return 1
  }
}

linters() { bin/golangci-lint run "${modules[@]/%//...}"; }

fixed() { # an empty diff is what counts, whatever the exit code for others is
  local diff status=0
  diff=$(go fix -diff work) || status=1
  [[ -z $diff ]] || {
    printf '%s\n' "$diff" 'go fix would change this (make fmt)'
    status=1
  }
  return "$status"
}

# Every module as a user without this workspace gets it: tidy, and it builds with the versions that it requires.
modules() { go run ./tests/cmd/modules; }

# No service contains what only tests need, not even indirectly: golangci-lint checks only the imports of single files.
services() {
  local packages found
  packages=$(go list -deps ./producer/cmd/... ./projector/cmd/...) || return 1
  found=$(grep -E '^(testing|github.com/sluice-cdc/sluice/(shared/virtualtime|tests)|github.com/stretchr/testify|go.uber.org/goleak)(/|$)' <<<"$packages") || return 0
  printf 'a service contains what only tests need:\n%s\n' "$found"
  return 1
}

# The words of Markdown, of comments in Go (scripts/prose/Sluice) and of the names of tests, and the width of comments, with a
# tab as four columns. A compiler directive and a list of values may be longer.
prose() {
  local clean found
  mapfile -t clean < <(grep -v '^#' scripts/prose/clean)
  bin/vale --config scripts/prose/vale.ini --output line "${clean[@]}" || return 1
  found=$(find "${clean[@]}" -name '*.go' -exec awk '{ l = $0; gsub(/\t/, "    ", l) }
    l ~ /^ *\/\/ / && length(l) > 100 && split(l, w, " ") > 3 { print FILENAME ":" FNR ": a comment wraps at 100 columns" }
    /^func (Test|Fuzz|Benchmark)[A-Za-z0-9_]*(Tells?|Told|Says?|Said|Nobody|Somebody|Whoever|Whatever|Mend|Anew|GoesBy)[A-Z(]/ {
      print FILENAME ":" FNR ": the name of a test has words that comments must not have: write reports, returns, logs, another client" }' {} +)
  [[ -z $found ]] || {
    printf '%s\n' "$found"
    return 1
  }
}

scripts() {
  local files=(.ci/run)
  mapfile -t -O 1 files < <(find scripts tests/emulator/scripts -name '*.sh')
  local f
  for f in "${files[@]}"; do bash -n "$f" || return 1; done
  if command -v shellcheck >/dev/null; then
    shellcheck --severity=warning "${files[@]}" # what is only information differs from version to version
  else
    echo 'lint: shellcheck is not here; scripts were only parsed'
  fi
}

# The code around the planted bugs of make sim changes, and only scripts/mutations.sh, which is rarely run, would notice. Each
# patch must apply and compile: a hunk may also match a wrong place. The tests that it names must exist.
mutations() {
  local patch file folder name stale=0 copies
  copies=$(mktemp -d)
  # shellcheck disable=SC2064 # these copies
  trap "rm -rf '$copies'" RETURN
  for patch in tests/sim/mutations/*.patch; do
    rm -rf "${copies:?}"/*
    local files=() folders=() overlay=''
    mapfile -t files < <(sed -n 's|^+++ b/||p' "$patch")
    cp --parents "${files[@]}" "$copies"
    if ! patch -p1 --force --silent -d "$copies" <"$patch" >/dev/null; then
      echo "$patch cannot be planted any more: make it again from the code as it is now"
      stale=1
      continue
    fi
    for file in "${files[@]}"; do
      folder=./$(dirname "$file")
      [[ " ${folders[*]} " == *" $folder "* ]] || folders+=("$folder")
      overlay+="${overlay:+, }\"$PWD/$file\": \"$copies/$file\""
    done
    echo "{\"Replace\": {$overlay}}" >"$copies/overlay.json"
    go build -overlay "$copies/overlay.json" "${folders[@]}" || {
      echo "$patch can be planted, and does not compile: make it again from the code as it is now"
      stale=1
    }
    while read -r folder name _; do
      grep -qE "^func $name\(" "tests/$folder"/*_test.go || {
        echo "$patch names $name, which $folder does not have"
        stale=1
      }
    done < <(sed -n 's/^Caught by: //p' "$patch")
  done
  return "$stale"
}

check tools tools
check gofumpt formatted
check vet go vet work
check golangci-lint linters
check fix fixed
check modules modules
check services services
check prose prose
check scripts scripts
check mutations mutations

if ((${#failed[@]})); then
  printf 'lint: FAILED: %s\n' "${failed[*]}"
  exit 1
fi
