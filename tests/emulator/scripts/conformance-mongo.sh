#!/usr/bin/env bash
# Runs the MongoDB driver's own tests against the embedded MongoDB, or a real one, and
# prints, for each group, how many passed, failed and do not apply, with the reason for each.
#
# Two drivers: v1.17.10, whose module ships the specifications' JSON tests, and the
# v2 driver that this repository uses, whose runner gets the same JSON files. Both
# are copied from the module cache to a temporary folder; nothing of them is kept.
#
#   tests/emulator/scripts/conformance-mongo.sh [GROUP…]   only groups whose name contains a GROUP
#
# MONGOD=PROGRAM runs them against that mongod, or MONGODB_URI against a server that is there: a
# replica set for tests alone. KEEP=1 keeps the temporary folder.
# Exits 1 when a test fails that conformance-mongo.known does not explain.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
root=$PWD
known=$root/tests/emulator/scripts/conformance-mongo.known
v1=v1.17.10
v2=$(GOWORK=off go -C tests/emulator list -m -f '{{.Version}}' go.mongodb.org/mongo-driver/v2)

work=$(mktemp -d)
# shellcheck disable=SC2329 # the trap calls it
cleanup() {
  wait
  if [[ ${KEEP:-} ]]; then echo "kept: $work"; else rm -rf "$work"; fi
}
trap cleanup EXIT

copy() { # copy MODULE@VERSION TO: a writable copy of a module, fetched when it is not there
  local dir
  dir=$(cd "$work" && GOWORK=off GOFLAGS=-mod=mod go mod download -json "$1" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  cp -r "$dir" "$work/$2"
  chmod -R u+w "$work/$2"
  rm -rf "$work/$2/vendor"
}

compile() { # compile COPY PACKAGE: builds its tests next to their data
  echo "compiling $1/$2" >&2
  (cd "$work/$1" && GOWORK=off GOFLAGS=-mod=mod go test -c -o "$2/conformance" "./$2")
}

copy "go.mongodb.org/mongo-driver@$v1" v1
copy "go.mongodb.org/mongo-driver/v2@$v2" v2
# The v2 module has the runner without the specifications: it gets those of v1.
specs=$work/v2/testdata/specifications/source
while read -r from to; do
  mkdir -p "$specs/$to"
  cp "$work/v1/testdata/$from"/*.json "$specs/$to/"
done <<'LAYOUT'
change-streams change-streams/tests/unified
crud/unified crud/tests/unified
retryable-writes/unified retryable-writes/tests/unified
transactions/unified transactions/tests/unified
sessions sessions/tests
collection-management collection-management/tests
run-command run-command/tests/unified
LAYOUT
compile v1 mongo/integration/unified
compile v1 mongo/integration
compile v2 internal/integration/unified
compile v2 internal/integration

at_once=1 # a server that is there has one set of fail points
if [[ -z ${MONGODB_URI:-} ]]; then
  (cd tests && go build -o "$work" ./cmd/local ./cmd/realmongo)
  at_once=4
fi

# serve runs a server until it is stopped, and prints its address.
# shellcheck disable=SC2329 # with_server calls it
serve() {
  if [[ ${MONGOD:-} ]]; then
    # shellcheck disable=SC2016 # it is for the other shell
    exec "$work/realmongo" "$MONGOD" bash -c 'echo "export MONGODB_URI=\"$MONGODB_URI\"" && exec sleep 100000'
  else
    exec "$work/local" --stack-only
  fi
}

# with_server runs a command with MONGODB_URI, of a server of its own if none is given.
with_server() {
  if [[ ${MONGODB_URI:-} ]]; then
    "$@"
    return
  fi
  local env=$work/stack.$BASHPID server
  : >"$env"
  serve >"$env" 2>"$env.log" &
  server=$!
  until grep -q '^export MONGODB_URI=' "$env"; do
    kill -0 "$server" || { cat "$env.log" >&2; return 1; }
    sleep 0.1
  done
  # shellcheck disable=SC1090
  MONGODB_URI=$(. "$env" && echo "$MONGODB_URI") "$@"
  kill "$server"
  wait "$server" || true
}

# leaves turns a test log into lines GROUP, STATUS, NAME, REASON; only leaf tests count.
# shellcheck disable=SC2016
leaves='
  /^=== (RUN|CONT|NAME)/ { current = $3; next }
  /^ +[a-zA-Z0-9_]+\.go:[0-9]+: / {
    line = $0; sub(/^ +[a-zA-Z0-9_]+\.go:[0-9]+: +/, "", line); gsub(/\t/, " ", line)
    if (!(current in first)) first[current] = line
    said = current; next
  }
  /^ *--- (PASS|FAIL|SKIP): / {
    name = $3; status[name] = substr($2, 1, 4); order[++count] = name; said = ""
    for (p = name; match(p, /\/[^\/]*$/); ) { p = substr(p, 1, RSTART - 1); parent[p] = 1 }
    next
  }
  /^panic: / { panic = $0 }
  said != "" && first[said] == "" { line = $0; sub(/^ +/, "", line); first[said] = line }
  said != "" && /Error:/ { line = $0; sub(/^.*Error: */, "", line); gsub(/\t/, " ", line); first[said] = line }
  END {
    for (i = 1; i <= count; i++) {
      name = order[i]
      if (name in parent) continue
      reason = first[name]
      if (reason == "" && status[name] == "FAIL") reason = panic
      print group "\t" status[name] "\t" name "\t" reason
    }
  }'

only=("$@")
groups=0
group() { # group NAME COPY PACKAGE PATTERN...: in the background, a few at a time
  local name=$1 wanted
  ((${#only[@]} == 0)) || for o in "${only[@]}"; do [[ $name == *"$o"* ]] && wanted=1; done
  [[ ${#only[@]} == 0 || ${wanted:-} ]] || return 0
  while (($(jobs -rp | wc -l) >= at_once)); do wait -n || true; done
  echo "running $name" >&2
  groups=$((groups + 1))
  with_server run "$(printf '%s/results.%02d' "$work" "$groups")" "$@" &
}

# shellcheck disable=SC2329 # with_server calls it
run() { # run RESULTS NAME COPY PACKAGE PATTERN...: a process for each pattern
  local results=$1 name=$2 copy=$3 package=$4
  shift 4
  : >"$results"
  for pattern in "$@"; do
    local log skip=()
    log=$work/$(tr -c 'a-zA-Z0-9\n' _ <<<"$name $pattern").log
    while :; do
      (cd "$work/$copy/$package" && timeout 600 ./conformance -test.v -test.run "$pattern" "${skip[@]/#/-test.skip=}") >"$log" 2>&1 || true
      grep -aq '^panic: ' "$log" || break
      # A test that panics ends the process: it counts as failed, and the others run without it.
      local broken
      broken=$(sed -n '/^panic: /q; s/^ *--- FAIL: \([^ ]*\) .*/\1/p' "$log" | tail -1)
      [[ $broken ]] || break
      printf '%s\tFAIL\t%s\t%s\n' "$name" "$broken" "$(grep -am1 '^panic: ' "$log")" >>"$results"
      # One flag holds all names, each with what has a meaning in a pattern escaped.
      skip=("${skip[*]:+${skip[*]}|}^$(sed 's/[][().*^$+?{}|\\]/\\&/g; s,/,$/^,g' <<<"$broken")\$")
    done
    awk -v group="$name" "$leaves" "$log" >>"$results"
    grep -aqE '^(PASS|FAIL)$' "$log" ||
      printf '%s\tFAIL\t%s\tit ended before all of them had run. %s\n' "$name" "$pattern" "$(grep -am1 '^panic: ' "$log")" >>"$results"
  done
}

for spec in change-streams crud/unified retryable-writes/unified transactions/unified sessions collection-management run-command; do
  group "v1 ${spec%/unified}" v1 mongo/integration/unified "^TestUnifiedSpec\$/^${spec//\//\$\/^}\$"
done
for spec in transactions/legacy convenient-transactions retryable-reads read-write-concern/operation; do
  group "v1 legacy ${spec%/*}" v1 mongo/integration "^TestUnifiedSpecs\$/^${spec//\//\$\/^}\$"
done
group 'v1 legacy crud' v1 mongo/integration '^TestCrudSpec'
group 'v1 legacy retryable-writes' v1 mongo/integration '^TestRetryableWritesSpec'
for spec in change-streams crud retryable-writes transactions sessions collection-management run-command; do
  tests=tests/unified
  case $spec in sessions | collection-management) tests=tests ;; esac
  group "v2 $spec" v2 internal/integration/unified "^TestUnifiedSpec\$/^$spec\$/^${tests//\//\$\/^}\$"
done
prose=(
  TestChangeStream_Standalone TestChangeStream_ReplicaSet TestCollection TestCausalConsistency_Supported TestCausalConsistency_NotSupported
  TestClient TestConvenientTransactions TestTransactions TestCursor_All TestCursor_TryNext TestCursor_RemainingBatchLength
  TestCursor_tailableAwaitData_applyRemainingTimeout TestCursor_tailableAwaitData_ShortCircuitingGetMore TestDatabase TestErrors TestErrorsCodeNamePropagated
  TestClientBulkWriteProse TestHintErrors TestIndexView TestConnectionsSurvivePrimaryStepDown TestRetryableReadsProse TestRetryableWritesProse
  TestSDAMErrorHandling TestSDAMProse TestSessionPool TestSessions TestSessionsProse TestWriteErrorsDetails TestWriteErrorsWithLabels
)
anchored=("${prose[@]/#/^}")
anchored=("${anchored[@]/%/\$}")
group 'v1 prose' v1 mongo/integration "${anchored[@]}"
group 'v2 prose' v2 internal/integration "${anchored[@]}"

wait

# The known file has lines PATTERN<tab>REASON, and those that hold for a real server, too, <tab>everywhere behind.
real=
[[ -z ${MONGODB_URI:-}${MONGOD:-} ]] || real=1
report=$work/report.awk
cat >"$report" <<'AWK'
BEGIN {
  FS = "\t"
  while ((getline line < known) > 0) {
    if (line ~ /^#/ || split(line, f, /\t+/) < (real ? 3 : 2)) continue
    pattern[++patterns] = f[1]; why[patterns] = f[2]
  }
}
{
  if (!($1 in seen)) { seen[$1] = 1; names[++groups] = $1 }
  n[$1, $2]++; total[$2]++
  if ($2 == "SKIP") {
    r = $4
    if (r ~ /is higher than max ver/) r = "written for older servers"
    else if (r ~ /is lower than min ver/) r = "written for newer servers"
    else if (r ~ /topology kind|topologies/) r = "written for other topologies (standalone, sharded, load balanced)"
    else if (r ~ /requires (ssl|auth|enterprise|client side)/) { sub(/^.*test /, "", r) }
    skipped[substr(r, 1, 120)]++
  }
  if ($2 == "FAIL") {
    for (i = 1; i <= patterns; i++) if ($3 ~ pattern[i]) break
    if (i <= patterns) { explained[why[i]]++ }
    else { unexplained++; print "UNEXPLAINED " $1 ": " $3 ": " $4 }
  }
}
END {
  printf "\n| group | passed | failed | not applicable |\n|---|---:|---:|---:|\n"
  for (i = 1; i <= groups; i++) { g = names[i]; printf "| %s | %d | %d | %d |\n", g, n[g, "PASS"], n[g, "FAIL"], n[g, "SKIP"] }
  printf "| **all** | %d | %d | %d |\n", total["PASS"], total["FAIL"], total["SKIP"]
  print "\n| failed | because |\n|---:|---|"
  for (r in explained) printf "| %d | %s |\n", explained[r], r | "sort -t'|' -k2,2nr -k3"
  close("sort -t'|' -k2,2nr -k3")
  print "\n| not applicable | because |\n|---:|---|"
  for (r in skipped) printf "| %d | %s |\n", skipped[r], r | "sort -t'|' -k2,2nr -k3"
  close("sort -t'|' -k2,2nr -k3")
  if (unexplained) { print "\n" unexplained " failures are not explained by conformance-mongo.known"; exit 1 }
}
AWK
status=0
awk -v known="$known" -v real="$real" -f "$report" "$work"/results.* || status=$?
if [[ ${KEEP:-} ]]; then awk -F'\t' '$2 == "FAIL"' "$work"/results.* >"$work/failed.tsv"; fi
exit "$status"
