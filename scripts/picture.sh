#!/usr/bin/env bash
# Makes docs/run.svg, the moving picture of the README, from the recording of a real run.
# A run that is not exactly right makes no picture.
set -euo pipefail
cd "$(dirname "$0")/.."

chaos=${CHAOS:-lose-leader@3s,lose-ack@11s,term-leader@15s}
out=${OUT:-docs/run.svg}
programs=$(mktemp -d)
trap 'rm -rf "$programs"' EXIT
go build -o "$programs/" ./producer/cmd/producer ./projector/cmd/projector ./tests/cmd/local ./tests/cmd/picture
"$programs/picture" "$out" "make run CHAOS=$chaos" "$programs/local" --services "$programs" --chaos "$chaos"
echo "picture: $out has $(wc -c <"$out") bytes"
