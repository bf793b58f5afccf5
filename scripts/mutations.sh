#!/usr/bin/env bash
# Plants each bug of tests/sim/mutations into a copy of the tree, and prints as a table of Markdown in how many seeds the
# simulation catches it, in which first, by which promise, and which tests are made to catch it every time: the kept plan of the
# same name, and the tests that the patch names in lines such as "Caught by: ./e2e/projector TestName", with a number of times where ten
# take too long. It fails if a bug is never caught, unless its patch has a line "Not caught:", and if a test that is made for it misses it once.
#
# Usage: scripts/mutations.sh [NAME…]        SEEDS=60 (how many seeds each)   TIMES=10 (how often what is made for a bug)
set -euo pipefail
cd "$(dirname "$0")/.."
seeds=${SEEDS:-60}
times=${TIMES:-10}
export GOGC=400
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
renice -n 5 $$ >/dev/null

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  for patch in tests/sim/mutations/*.patch; do names+=("$(basename "$patch" .patch)"); done
fi

# plant NAME: a fresh copy of the working tree with the bug in it.
plant() {
  rm -rf "$tree/copy"
  mkdir "$tree/copy"
  git ls-files -z --cached --others --exclude-standard -- producer projector shared tests go.work |
    while IFS= read -r -d '' file; do if [ -e "$file" ]; then printf '%s\0' "$file"; fi; done |
    tar --null -T - -cf - | tar -xf - -C "$tree/copy"
  patch -s -p1 -d "$tree/copy" <"tests/sim/mutations/$1.patch"
}

# sim ARGUMENT…: the simulation with the bug in it.
sim() { (cd "$tree/copy/tests/sim" && "$tree/sim.test" -test.timeout 30m -shrink 0 "$@"); }

# failed PATTERN FILE: how many tests whose names match failed, or hung until virtualtime.Test ended the process.
failed() { grep -cE -- "^ *--- FAIL: $1 |^panic: $1 has not ended" "$2" || true; }

# made NAME: runs what is made to catch the bug, and prints how many times it did.
made() {
  local name=$1 package test runs n report=()
  if [ -e "tests/sim/testdata/plans/$name.json" ]; then
    sim -test.run 'TestSimulation$' -test.v -plan "testdata/plans/$name.json" -tries "$times" -breaks 'to the last' >"$tree/made" 2>&1 || true
    n=$(failed 'TestSimulation/try/[0-9]+' "$tree/made")
    report+=("plan \`$name\` ($n of $times)")
  fi
  while read -r package test runs; do
    runs=${runs:-$times}
    (cd "$tree/copy/tests" && go test -trimpath -run "^$test\$" -count "$runs" "$package") >"$tree/made" 2>&1 || true
    n=$(failed "$test" "$tree/made")
    report+=("\`$test\` ($n of $runs)")
  done < <(sed -n 's/^Caught by: //p' "tests/sim/mutations/$name.patch")
  if [ ${#report[@]} -gt 0 ]; then
    printf '%s' "${report[0]}"
    if [ ${#report[@]} -gt 1 ]; then printf ', %s' "${report[@]:1}"; fi
  fi
}

printf '| mutation | caught in | first seed | by | made for it |\n|---|---|---|---|---|\n'
missed=0
for name in "${names[@]}"; do
  plant "$name"
  (cd "$tree/copy/tests" && go test -trimpath -c -o "$tree/sim.test" ./sim)
  SIM_SEEDS=$seeds sim -test.run 'TestSimulation$/^seed$' -test.v >"$tree/out" 2>&1 || true
  caught=$(failed 'TestSimulation/seed/[0-9]+' "$tree/out")
  first=$(grep -oE -- '--- FAIL: TestSimulation/seed/[0-9]+' "$tree/out" | grep -oE '[0-9]+$' | sort -n | head -1 || true)
  by=$({ grep -oE 'promises broken: .*' "$tree/out" || true; } | sed 's/promises broken: //' | tr ';' '\n' | sed 's/^ //' |
    sort | uniq -c | sort -rn | awk '{n=$1; $1=""; printf "%s%s (%d)", sep, substr($0,2), n; sep=", "}')
  if grep -qE '^panic:' "$tree/out"; then by+=" then panic: $(grep -m1 -E '^panic:' "$tree/out" | cut -c8-80)"; fi
  made=$(made "$name")
  printf '| %s | %s of %s | %s | %s | %s |\n' "$name" "$caught" "$seeds" "${first:--}" "${by:-nothing}" "$made"
  if grep -q '^Not caught:' "tests/sim/mutations/$name.patch"; then continue; fi
  if [ "$caught" -eq 0 ] && [ -z "$made" ]; then missed=1; fi
  while read -r n runs; do
    if [ "$n" -lt "$runs" ]; then missed=1; fi
  done < <(sed -nE 's/.*\(([0-9]+) of ([0-9]+)\).*/\1 \2/p' <<<"${made//, /$'\n'}")
done
exit $missed
