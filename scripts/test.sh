#!/usr/bin/env bash
# test.sh FLAGS… -- PACKAGES…: "go test", and once more for a package in which the race detector itself crashed.
#
# Its runtime now and then fails a check of its own under testing/synctest (golang/go#78156, open in Go 1.26) and takes the
# process with it: no test has failed, and none of that package has been judged. Anything else that fails, fails.
set -euo pipefail

flags=()
while [[ $# -gt 0 && $1 != -- ]]; do
  flags+=("$1")
  shift
done
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT

status=0
go test "${flags[@]}" "$@" 2>&1 | tee "$log" || status=$?
[[ $status -ne 0 ]] || exit 0

# the packages that failed; "!" for those that failed by anything but that crash
failed=$(awk '
  /ThreadSanitizer: CHECK failed/ { crashed = 1 }
  /^[[:space:]]*--- FAIL/ || /^panic:/ || /WARNING: DATA RACE/ { broken = 1 }
  /^FAIL[[:space:]]+[^[:space:]]+\// { print (crashed && !broken && $0 !~ /\[/ ? "" : "!") $2 }
  /^(ok|FAIL|\?)[[:space:]]+[^[:space:]]+\// { crashed = broken = 0 }
' "$log")
if [[ -z $failed || $failed == *'!'* ]]; then
  exit "$status"
fi
echo "test: the race detector crashed (golang/go#78156), once more: ${failed//$'\n'/ }" >&2
# shellcheck disable=SC2086 # one word a package
go test "${flags[@]}" $failed
