#!/bin/sh
# Run by azd once the apps are deployed: prints what to do next, and runs the doctor of both services in Azure, with their own rights. It
# never fails a deployment that is done.
set -eu
scripts=$(dirname "$0")
group=${AZURE_RESOURCE_GROUP:-GROUP}

echo "postdeploy: next:
  az containerapp logs show -g $group -n ${SERVICE_PRODUCER_NAME:-PRODUCER} --follow    # \"msg\":\"leading\" from one producer
  https://portal.azure.com/#resource/subscriptions/${AZURE_SUBSCRIPTION_ID:-}/resourceGroups/$group/overview    # the workbook Sluice, and the alerts
  infra/README.md, \"Runbook\"; docs/troubleshooting.md"

services='producer projector'
case ${PROJECTION_VERSIONS:-} in *,*) services="producer projector:$(echo "$PROJECTION_VERSIONS" | sed 's/,/ projector:/g')" ;; esac
account=${BLOB_ACCOUNT_URL:-}
account=${account#https://}
if command -v bash >/dev/null 2>&1 && command -v az >/dev/null 2>&1 &&
  az storage blob list --auth-mode login --account-name "${account%%.*}" --container-name command-results --num-results 1 --output none 2>/dev/null; then
  # shellcheck disable=SC2086 # the services become words
  for service in $services; do
    echo "postdeploy: $service doctor"
    bash "$scripts/operate.sh" -g "$group" "$service" doctor ||
      echo "postdeploy: the $service's doctor has found something, or could not run; again: scripts/operate.sh -g $group $service doctor" >&2
  done
else
  echo "postdeploy: the doctors are not run, since their answers cannot be read here: az, signed in as a member of OPERATORS_GROUP_ID, can. Then:
  scripts/operate.sh -g $group producer doctor
  scripts/operate.sh -g $group projector doctor"
fi
