#!/bin/sh
# Installs what the examples of projections in other languages need: the packages that each one
# pins, in folders that are not part of the repository. A language whose tools are absent is left
# out; the tests then skip it and give the reason.
set -eu
cd "$(dirname "$0")/../projector/examples/languages"
if command -v npm >/dev/null; then
	(cd typescript && npm install --no-audit --no-fund --silent && npm run --silent build)
else
	echo "npm is not installed: the example in TypeScript is not run"
fi
if command -v mvn >/dev/null; then
	mvn -q dependency:copy -Dartifact=org.json:json:20250107 -DoutputDirectory="$PWD/java/build" -Dmdep.stripVersion=true
else
	echo "mvn is not installed: the example in Java is not run"
fi
