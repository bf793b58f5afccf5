#!/usr/bin/env bash
# flakes.sh [--fresh] N [PACKAGE…]: the suite N times, under changing conditions, and a table of what failed how often.
#
# Every second run has a busy loop on each processor beside it, and GOMAXPROCS is 1, 2 and 4 in turn, unless it is set: six runs are
# every combination. --fresh runs "make test" in a new clone of what is committed, each time; without it scripts/test.sh runs here,
# of the packages named or of all. RACE=1 is as there. Nothing comes from the cache of test results.
#
# The tables are printed at the end, and kept with the output of each run that failed in the folder that is named. Exits 1 when
# anything failed. LOGS=FOLDER for another folder than a new one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fresh=
if [[ ${1:-} == --fresh ]]; then
  fresh=yes
  shift
fi
runs=${1:-}
if ! [[ $runs =~ ^[1-9][0-9]*$ ]] || [[ -n $fresh && $# -gt 1 ]]; then
  echo 'usage: scripts/flakes.sh N [PACKAGE…], or scripts/flakes.sh --fresh N' >&2
  exit 2
fi
shift
logs=${LOGS:-$(mktemp -d -t flakes.XXXXXX)}
mkdir -p "$logs"
logs=$(cd "$logs" && pwd)
if [[ -e $logs/runs.tsv ]]; then
  echo "flakes: $logs has runs already: name another folder" >&2
  exit 2
fi

asked=${GOMAXPROCS:-}
loops=()
quiet() { # ends the busy loops
  ((${#loops[@]} == 0)) || kill "${loops[@]}" 2>/dev/null || true
  loops=()
}
clone=
trap 'quiet; rm -rf "$clone"' EXIT

# A loop looks now and then whether this script is still there, so that none outlives it, however it ends.
busy() {
  local processors
  processors=$(getconf _NPROCESSORS_ONLN)
  for ((p = 0; p < processors; p++)); do
    # shellcheck disable=SC2016 # of the loop's own shell
    bash -c 'while kill -0 "$1" 2>/dev/null; do for ((i = 0; i < 100000; i++)); do :; done; done' busy $$ &
    loops+=($!)
  done
}

# suite PACKAGE…: one run.
suite() {
  GOFLAGS="$(go env GOFLAGS) -count=1"
  export GOFLAGS
  if [[ -n $fresh ]]; then
    git clone -q . "$clone/sluice" && make -C "$clone/sluice" test
  else
    scripts/test.sh "$@"
  fi
}

# All clones have the same place, by which the go command knows again what it has compiled, as it does in anybody's own.
[[ -z $fresh ]] || clone=$(mktemp -d -t flakes-clone.XXXXXX)
for ((n = 1; n <= runs; n++)); do
  name=$(printf '%03d' "$n")
  procs=${asked:-$((1 << ((n - 1) / 2 % 3)))}
  load=idle
  if ((n % 2 == 0)); then
    load=busy
    busy
  fi
  code=0
  TIMEFORMAT='%R %U %S'
  { time GOMAXPROCS=$procs suite "$@" >"$logs/$name.out" 2>&1 || code=$?; } 2>"$logs/time"
  quiet
  wait 2>/dev/null || true
  [[ -z $fresh ]] || rm -rf "$clone/sluice"
  read -r wall user system <"$logs/time"
  printf '%s\t%s\t%s\t%s\t%d\n' "$name" "$load, GOMAXPROCS=$procs" "$wall" "$(awk "BEGIN { print $user + $system }")" "$code" >>"$logs/runs.tsv"
  printf 'flakes: %s of %d, %s, GOMAXPROCS=%d: %s in %s s\n' "$name" "$runs" "$load" "$procs" \
    "$( ((code == 0)) && echo green || echo RED)" "$wall" >&2
done
rm -f "$logs/time"

{
  awk -F '\t' 'BEGIN { print "| run | conditions | wall | processor | exit code |\n|---|---|---:|---:|---:|" }
    { printf "| %s | %s | %.0f s | %.0f s | %d |\n", $1, $2, $3, $4, $5; green += $5 == 0 }
    END { printf "\n%d of %d runs are green.\n", green, NR }' "$logs/runs.tsv"
  # In how many runs: a test, a package that has not been built or has crashed, and what ended it.
  grep -oE '^ *--- FAIL: [^ ]+|^FAIL\s+\S+/\S+|^panic: .*' "$logs"/*.out /dev/null | sort -u | sed -E 's/^.*\.out: *//' | sort | uniq -c | sort -rn |
    awk 'NR == 1 { print "\n| runs | failed |\n|---:|---|" } { n = $1; $1 = ""; printf "| %d |%s |\n", n, $0 }' || true
} | tee "$logs/table.md"
status=0
while IFS=$'\t' read -r name _ _ _ code; do
  if ((code)); then status=1; else rm -f "$logs/$name.out"; fi
done <"$logs/runs.tsv"
echo "flakes: the tables and the output of what failed are in $logs" >&2
exit "$status"
