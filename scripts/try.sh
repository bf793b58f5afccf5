#!/usr/bin/env bash
# try.sh [--only PART] [--at-once N]: wrong configurations and odd inputs against the built programs on the embedded stack. Prints
# what each said, in how many milliseconds, and with which exit code; exits with 1 where a line is not as it should be.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec go run ./tests/cmd/try "$@"
