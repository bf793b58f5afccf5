#!/usr/bin/env bash
# Plants each bug of tests/sim/mutations into a copy of the tree and says by how many runs the simulation catches it
# (seeds, pinned seeds, and the two long outages), and by which promise. A mutation that no run catches makes it fail,
# unless its patch says "Not caught:".
#
# Usage: scripts/mutations.sh [NAME…]        SEEDS=100 (how many seeds each)   RUN='TestSimulation$' (without the outages)
set -euo pipefail
cd "$(dirname "$0")/.."
seeds=${SEEDS:-100}
run=${RUN:-TestSimulation\$|AwayForHours}
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

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

printf '%-32s %-12s %-10s %s\n' mutation caught first by
missed=0
for name in "${names[@]}"; do
  plant "$name"
  (cd "$tree/copy/tests" && go test -c -o "$tree/sim.test" ./sim)
  code=0
  (cd "$tree/copy/tests/sim" && SIM_SEEDS=$seeds "$tree/sim.test" -test.run "$run" -test.timeout 30m -test.v) \
    >"$tree/out" 2>&1 || code=$?
  caught=$(grep -cE -- '^ *--- FAIL: (TestSimulation/(seed|pinned)|[A-Za-z0-9]*AwayForHours)/' "$tree/out" || true)
  runs=$(grep -cE -- '^ *--- (PASS|FAIL): (TestSimulation/(seed|pinned)|[A-Za-z0-9]*AwayForHours)/' "$tree/out" || true)
  first=$(grep -oE -- '--- FAIL: TestSimulation/seed/[0-9]+' "$tree/out" | grep -oE '[0-9]+$' | sort -n | head -1 || true)
  by=$({ grep -oE 'promises broken: .*' "$tree/out" || true; } | sed 's/promises broken: //' | tr ';' '\n' | sed 's/^ //' |
    sort | uniq -c | sort -rn | awk '{n=$1; $1=""; printf "%s%s (%d)", sep, substr($0,2), n; sep=", "}')
  if grep -qE '^panic:' "$tree/out"; then by+=" then panic: $(grep -m1 -E '^panic:' "$tree/out" | cut -c8-80)"; fi
  printf '%-32s %-12s %-10s %s\n' "$name" "$caught/$runs" "${first:--}" "${by:-nothing}"
  if [ "$code" -eq 0 ] && ! grep -q '^Not caught:' "tests/sim/mutations/$name.patch"; then missed=1; fi
done
exit $missed
