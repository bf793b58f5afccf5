#!/usr/bin/env bash
# race.sh [PACKAGE…]: every test of the packages, of the whole workspace without any, under the race detector, those in virtual
# time too. It takes Go 1.27, which the go command fetches where an older one is: Go 1.26 crashes under both at once.
#
# Should the runtime crash all the same, the last lines say so, by its own words: then no test has failed in that package, and
# none has been judged. That is a failure like any other.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ $# -gt 0 ]] || set -- work

sound=go1.27.0
version=$(go env GOVERSION)
if [[ $(printf '%s\n' "${version#go}" "${sound#go}" | sort -V | head -1) != "${sound#go}" ]]; then
  export GOTOOLCHAIN=$sound
fi
go version

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
CGO_ENABLED=1 VIRTUALTIME_RACE=run GOGC=400 go test -race -count 1 -timeout 60m "$@" 2>&1 | tee "$log" || status=1
awk '
  /ThreadSanitizer: CHECK failed/ { words = $0 }
  /^SIGSEGV: segmentation violation/ { words = $0 }
  /^FAIL[[:space:]]+[^[:space:]]+\// && words != "" { print "race: the runtime itself crashed in " $2 ": " words }
  /^(ok|FAIL|\?)[[:space:]]+[^[:space:]]+\// { words = "" }
' "$log" >&2
exit "$status"
