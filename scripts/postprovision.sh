#!/bin/sh
# Run by azd once the resources are there, and in "azd up" before it deploys the apps: prints the address that MongoDB has to allow.
set -eu
[ -n "${OUTBOUND_ADDRESS:-}" ] || exit 0
echo "postprovision: what goes out comes from $OUTBOUND_ADDRESS. Allow it at MongoDB now: until then the apps wait and try again."
