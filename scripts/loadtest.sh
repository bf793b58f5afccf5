#!/usr/bin/env bash
# loadtest.sh [--rate N] [--aggregates N] [--size BYTES] [--minutes N]: puts a load on a pipeline that runs with the projection
# timeline, and reports throughput, latency, credits, cost, and whether the read model is right.
#
# With MONGODB_URI, MONGODB_DATABASE, MONGODB_COLLECTION and READ_MODEL_DATABASE set it runs here, on the pipeline that they name. Without
# MONGODB_URI it runs as a job in the environment of azd, and adds what the namespace measured: see infra/README.md, "Load test". The exit
# code is 0 if everything became visible, once.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/answer.sh
. "$root/scripts/answer.sh"
if [[ -n ${MONGODB_URI:-} ]]; then
  exec go run "$root/tests/cmd/load" "$@"
fi
for word in "$@"; do # they go into JSON below
  [[ $word =~ ^--?[a-z]+(=[0-9.]+)?$ || $word =~ ^[0-9.]+$ ]] || {
    sed -n '2,3s/^# //p' "${BASH_SOURCE[0]}" >&2
    exit 2
  }
done

value() { azd env get-value "$1"; }
group=$(value AZURE_RESOURCE_GROUP)
registry=$(value AZURE_CONTAINER_REGISTRY_ENDPOINT)
vault=$(value AZURE_KEY_VAULT_NAME)
identity=$(value SERVICE_PROJECTOR_IDENTITY_ID)
namespace=$(value SERVICE_BUS_NAMESPACE_NAME)
job=caj-load-${vault##*-}
blobs=$(value BLOB_ACCOUNT_URL)
account=${blobs#https://}
account=${account%%.*}

# A user that may write to the source and read the read models. The services' own may not do both.
secret=$(az keyvault secret show --vault-name "$vault" --name loadtest-mongodb-uri --query id --output tsv) || {
  echo "loadtest: the vault has no secret loadtest-mongodb-uri: az keyvault secret set --vault-name $vault --name loadtest-mongodb-uri --file uri.txt" >&2
  exit 1
}
az role assignment create --role 'Key Vault Secrets User' --assignee-principal-type ServicePrincipal \
  --assignee-object-id "$(az identity show --ids "$identity" --query principalId --output tsv)" \
  --scope "$(az keyvault show --name "$vault" --query id --output tsv)/secrets/loadtest-mongodb-uri" --output none

work=$(mktemp -d)
cleanup() {
  az containerapp job delete --resource-group "$group" --name "$job" --yes --output none 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT

(cd "$root" && CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -trimpath -o "$work/load" ./tests/cmd/load)
# The projector's own base, by its digest.
{
  grep '^FROM gcr.io/distroless' "$root/projector/Dockerfile"
  printf 'COPY load /load\nUSER 65532:65532\nENTRYPOINT ["/load"]\n'
} >"$work/Dockerfile"
image=loadtest:$(date -u +%Y%m%d%H%M%S)
az acr build --registry "${registry%%.*}" --image "$image" "$work" --output none

words=[]
(($# == 0)) || words=$(answer_json "$@")
environment=$(az containerapp env show --resource-group "$group" --name "$(value AZURE_CONTAINER_ENVIRONMENT_NAME)" --query id --output tsv)
cat >"$work/parameters.json" <<JSON
{ "parameters": {
  "name": { "value": "$job" }, "location": { "value": "$(value AZURE_LOCATION)" }, "environmentId": { "value": "$environment" },
  "tags": { "value": { "azd-env-name": "$(value AZURE_ENV_NAME)", "application": "sluice" } },
  "registry": { "value": "$registry" }, "image": { "value": "$registry/$image" }, "identityId": { "value": "$identity" },
  "mongoSecretUri": { "value": "${secret%/*}" }, "args": { "value": $words },
  "settings": { "value": [
    { "name": "AZURE_CLIENT_ID", "value": "$(value SERVICE_PROJECTOR_IDENTITY_CLIENT_ID)" },
    { "name": "BLOB_ACCOUNT_URL", "value": "$blobs" },
    { "name": "COMMAND_ANSWER", "value": "command-results/$answer" },
    { "name": "MONGODB_URI", "secretRef": "mongodb-uri" },
    { "name": "MONGODB_DATABASE", "value": "$(value MONGODB_DATABASE)" },
    { "name": "MONGODB_COLLECTION", "value": "$(value MONGODB_COLLECTION)" },
    { "name": "READ_MODEL_DATABASE", "value": "$(value READ_MODEL_DATABASE)" }
  ] },
  "cpu": { "value": "1" }, "memory": { "value": "2Gi" }, "timeoutSeconds": { "value": 7200 }
} }
JSON
az deployment group create --resource-group "$group" --name loadtest --template-file "$root/infra/app/job.bicep" \
  --parameters "@$work/parameters.json" --output none
began=$(date -u +%Y-%m-%dT%H:%M:%SZ)
execution=$(az containerapp job start --resource-group "$group" --name "$job" --query name --output tsv)
echo "loadtest: started $execution" >&2

code=0
answer_await "$group" "$job" "$execution" "$account" || code=$?
echo "the namespace's own measure since $began, all of what was done in it:"
az monitor metrics list --resource "$(az servicebus namespace show --resource-group "$group" --name "$namespace" --query id --output tsv)" \
  --metrics IncomingMessages OutgoingMessages IncomingRequests ThrottledRequests --aggregation Total --interval PT1M --start-time "$began" \
  --query 'value[].{metric: name.value, total: sum(timeseries[].data[].total)}' --output tsv
exit "$code"
