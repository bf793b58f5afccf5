#!/usr/bin/env bash
# operate.sh producer|projector COMMAND…: runs one of the service's commands in Azure, with the service's own identity,
# settings and place in the network, and shows what it says: scripts/operate.sh projector parked list
#
# It starts the service's job with that command and waits for it. Needs az, signed in as somebody who may start jobs in the
# resource group, and azd's environment. The exit code is 0 where the command's was.
set -euo pipefail

usage() {
  echo 'usage: scripts/operate.sh producer|projector COMMAND…, such as: scripts/operate.sh projector parked list' >&2
  exit 2
}
service=${1:-}
case $service in producer | projector) shift ;; *) usage ;; esac
(($# > 0)) || usage

group=$(azd env get-value AZURE_RESOURCE_GROUP)
job=$(azd env get-value "SERVICE_${service^^}_JOB_NAME")
template=$(mktemp)
trap 'rm -f "$template"' EXIT

# The job's own template with other arguments. az takes only a whole one, and from it takes the environment, too.
quoted=
for word in "$@"; do
  word=${word//\\/\\\\}
  quoted+=${quoted:+,}\"${word//\"/\\\"}\"
done
az containerapp job show --resource-group "$group" --name "$job" --query properties.template --output json |
  ARGS="[$quoted]" awk '
    /"args": \[/ { sub(/\[.*/, ""); printf "%s%s,\n", $0, ENVIRON["ARGS"]; skip = !/\]/; found = 1; next }
    skip { if (/\]/) skip = 0; next }
    { print }
    END { if (!found) { print "operate: the job has no arguments to replace" > "/dev/stderr"; exit 1 } }
  ' >"$template"
execution=$(az containerapp job start --resource-group "$group" --name "$job" --yaml "$template" --query name --output tsv)
echo "operate: started $execution" >&2

status=Running
while [[ $status == Running || $status == Processing || $status == Unknown ]]; do
  sleep "${OPERATE_POLL:-5}"
  status=$(az containerapp job execution show --resource-group "$group" --name "$job" --job-execution-name "$execution" \
    --query properties.status --output tsv)
done
az containerapp job logs show --resource-group "$group" --name "$job" --execution "$execution" --container command --format text
if [[ $status != Succeeded ]]; then
  echo "operate: $status" >&2
  exit 1
fi
