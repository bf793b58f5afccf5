#!/usr/bin/env bash
# test.sh [PACKAGE…]: every test of the packages; without any, of the whole workspace but tests/modules, which builds the modules
# once more, as their users do (make test-modules). With RACE=1, as in .ci/run, what the race detector can watch runs under it;
# without, each package is compiled and tested once, which takes half as long.
#
# With the detector there are three runs of go test. The first is of the packages that have tests in virtual time, without the
# detector: Go 1.26 would crash now and then (golang/go#78156), and it would take three times as long. The second is of all packages
# that it can watch, with it; there the tests in virtual time are skipped, as are in the first those that take real time
# (shared/virtualtime). The third, without it, is of the packages whose tests start other processes, or read pages and templates. So no test is
# left out, and what runs in real time within a test is watched. Last, in both cases, is tests/chaos alone: for want of a processor
# its leaders would lose their leases.
#
# Which packages have tests in virtual time is asked of the go command: those whose test program has testing/synctest in it.
# Test files with no other tests are left out of the second run by a build tag (!race || go1.27).
#
# Whatever can do without cgo does: the images are built so, and what depends on net is compiled once for all. The race
# detector needs cgo.
#
# GOGC=400: compilers and tests take a fifth less processor time if they collect garbage less often.
#
# go vet is no part of it, but of make lint.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CGO_ENABLED=0

# The programs that tests run, built once. The folder is named after their content, by which the go
# command knows when the result of a test that runs them is out of date.
new=bin/programs/new
rm -rf "$new"
for program in producer/cmd/producer projector/cmd/projector tests/cmd/local; do
  GOGC=400 go build -buildvcs=false -o "$new/$program" "./$program"
done
SLUICE_PROGRAMS=$PWD/bin/programs/$(find "$new" -type f | sort | xargs cat | cksum | tr ' ' -)
export SLUICE_PROGRAMS
find bin/programs -mindepth 1 -maxdepth 1 ! -path "$new" ! -path "bin/programs/${SLUICE_PROGRAMS##*/}" -exec rm -rf {} +
[[ -d $SLUICE_PROGRAMS ]] || mv "$new" "$SLUICE_PROGRAMS"
rm -rf "$new"

# What changes with any file, for the tests that read files outside of their module (tests/internal/tree).
SLUICE_TREE=$(git ls-files -z --cached --others --exclude-standard | sort -z | xargs -0 cat 2>/dev/null | cksum || true)
export SLUICE_TREE=${SLUICE_TREE:-$RANDOM}

# run WHAT VARIABLE=VALUE… go test FLAG… PACKAGES: one run of go test, and what it is.
status=0
run() {
  echo "test: $1" >&2
  shift
  env "$@" || status=1
}

# The longest tests wait more than they work: four packages at a time, where there are fewer processors.
processors=$(getconf _NPROCESSORS_ONLN)
at_once=$((processors < 4 ? 4 : processors))
if [[ $# -gt 0 ]]; then
  packages=$(go list "$@")
else
  packages=$(go list work | grep -v '/tests/modules$')
fi
chaos=$(grep -x 'github.com/sluice-cdc/sluice/tests/chaos' <<<"$packages" || true)
others=$(grep -vx "${chaos:-none}" <<<"$packages" || true)

# shellcheck disable=SC2086 # one word a package
if [[ -n ${RACE:-} && -n $others ]]; then
  if ! command -v "$(go env CC)" >/dev/null; then
    echo 'test: the race detector needs a C compiler, and none is here: install one, or run the tests without RACE=1' >&2
    exit 1
  fi
  virtual=$(go list -test -f '{{.ImportPath}}{{range .Deps}}{{if eq . "testing/synctest"}} virtual{{end}}{{end}}' $others | sed -n 's/\.test virtual$//p')
  unwatched='sluice/(producer/stores/[a-z]+|tests/(cmd/(local|modules|picture)|deploy|docs|e2e/programs|images|internal/(bicep|kusto|modules|page)))$'
  alone=$(grep -E "$unwatched" <<<"$others" || true)
  watched=$(grep -vE "$unwatched" <<<"$others" || true)
  [[ -z $virtual ]] ||
    run 'the packages with tests in virtual time' VIRTUALTIME_REAL=skip GOGC=400 go test -p "$at_once" -vet off -timeout 15m $virtual
  # Each program would sleep a second at its end, for races in what still runs; ours join what they start.
  [[ -z $watched ]] ||
    run 'what runs in real time, with the race detector' CGO_ENABLED=1 GOGC=400 VIRTUALTIME_RACE=skip GORACE=atexit_sleep_ms=0 \
      go test -race -p "$at_once" -vet off -timeout 15m $watched
  [[ -z $alone ]] ||
    run 'what the race detector cannot watch: other processes, pages and templates' GOGC=400 go test -p "$at_once" -vet off -timeout 15m $alone
elif [[ -n $others ]]; then
  run 'all packages but tests/chaos, without the race detector (RACE=1)' GOGC=400 go test -p "$at_once" -vet off -timeout 20m $others
fi
[[ -z $chaos ]] || run 'processes that are killed and stopped' go test -vet off -timeout 15m "$chaos"
exit "$status"
