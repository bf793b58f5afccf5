#!/usr/bin/env bash
# operate.sh [-g GROUP] producer|projector[:VERSION] COMMAND…: runs one of the service's commands in Azure, with the service's own identity,
# settings and place in the network, and prints what it prints: scripts/operate.sh projector parked list
#
# It starts the service's job with that command and waits for it. It needs az, signed in as a member of the operators' group or anyone else who
# may start the job, and no folder of azd's: it finds the job by its tags. -g names the resource group if there are several
# deployments, and :VERSION, such as projector:2, the version of the projection if there are several. The exit code is the command's.
#
# Works with bash 3.2, which macOS has. Windows: operate.ps1.
set -euo pipefail
# shellcheck source=scripts/answer.sh
. "$(dirname "${BASH_SOURCE[0]}")/answer.sh"

usage() {
  echo 'usage: scripts/operate.sh [-g GROUP] producer|projector[:VERSION] COMMAND…, such as: scripts/operate.sh projector parked list' >&2
  exit 2
}
group=
if [[ ${1:-} == -g ]]; then
  group=${2:-}
  [[ -n $group ]] || usage
  shift 2
fi
service=${1:-}
version=
case $service in
producer | projector) shift ;;
projector:*[!0-9]* | projector:) usage ;;
projector:*)
  version=${service#projector:} service=projector
  shift
  ;;
*) usage ;;
esac
(($# > 0)) || usage
for word in "$@"; do
  case $word in *[[:cntrl:]]*) usage ;; esac # it goes into a line of JSON
done

found=$(az resource list --resource-type Microsoft.App/jobs ${group:+--resource-group "$group"} \
  --query "[?tags.application=='sluice' && tags.\"sluice-commands\"=='$service'${version:+ && tags.\"sluice-version\"=='$version'}].[resourceGroup, name]" --output tsv)
if [[ -z $found || $found == *$'\n'* ]]; then
  echo "operate: there must be one job for the $service's commands that you may see; -g names its resource group, projector:VERSION a version. Found: ${found:-none}" >&2
  exit 1
fi
group=${found%%$'\t'*}
job=${found#*$'\t'}

# The job's own template with other arguments, and the place of the answer. az accepts only a whole template, and reads the
# environment from it as well.
template=$(mktemp)
trap 'rm -f "$template"' EXIT
az containerapp job show --resource-group "$group" --name "$job" --query properties.template --output json |
  ARGS="$(answer_json "$@")" ANSWER="command-results/$answer" awk '
    !args && /"args": \[/ { sub(/\[.*/, ""); printf "%s%s,\n", $0, ENVIRON["ARGS"]; skip = !/\]/; args = 1; next }
    skip { if (/\]/) skip = 0; next }
    { print }
    !env && /"env": \[/ { printf "{ \"name\": \"COMMAND_ANSWER\", \"value\": \"%s\" },\n", ENVIRON["ANSWER"]; env = 1 }
    END { if (!args || !env) { print "operate: the job has no arguments or no environment to replace" > "/dev/stderr"; exit 1 } }
  ' >"$template"
# A container of the projection's program beside the command's goes on after the command.
program=$(sed -n 's/.*"name": "projection".*/yes/p' "$template")
account=$(sed -n 's|.*"https://\([a-z0-9]*\)\.blob\..*|\1|p' "$template")
execution=$(az containerapp job start --resource-group "$group" --name "$job" --yaml "$template" --query name --output tsv)
echo "operate: started $execution" >&2

code=0
answer_await "$group" "$job" "$execution" "$account" "$program" || code=$?
exit "$code"
