#!/bin/sh
# Run by azd before it provisions: reports everything that is missing, at once.
# azd passes the variables of its environment. Values are never printed.
set -eu

problems=0
problem() {
  echo "preflight: $1" >&2
  problems=$((problems + 1))
}
required() { # required NAME WHAT: NAME must be set
  eval "value=\${$1:-}"
  [ -n "$value" ] || problem "$1 is not set: $2"
}

# Not wrong, but seldom meant.
[ -n "${ALERT_EMAIL:-}" ] ||
  echo 'preflight: warning: ALERT_EMAIL is not set, so alerts are only shown in the portal; azd env set ALERT_EMAIL ADDRESS' >&2

if [ "${MONGO_MODE:-external}" != demo ]; then
  required MONGODB_DATABASE 'the database to watch; azd env set MONGODB_DATABASE NAME'
  required MONGODB_COLLECTION 'the collection to watch; azd env set MONGODB_COLLECTION NAME'
fi

case ${MONGO_MODE:-external} in
external)
  required SOURCE_MONGODB_URI 'a connection string; azd env set-secret SOURCE_MONGODB_URI'
  ;;
documentdb)
  required DOCUMENTDB_PASSWORD 'of the new cluster, 8 characters or more; azd env set-secret DOCUMENTDB_PASSWORD'
  password=${DOCUMENTDB_PASSWORD:-12345678}
  case $password in akvs://*) password=12345678 ;; esac # azd resolves it later
  if [ "${#password}" -lt 8 ] || [ "${#password}" -gt 128 ]; then
    problem 'DOCUMENTDB_PASSWORD must have from 8 to 128 characters'
  fi
  ;;
demo) ;;
*)
  problem 'MONGO_MODE is neither external nor documentdb nor demo'
  ;;
esac

case ${NETWORK:-public} in
public)
  [ -z "${SUBNET_ID:-}" ] || problem 'SUBNET_ID needs NETWORK=vnet or private'
  ;;
vnet) ;;
private)
  [ "${SERVICE_BUS_SKU:-Standard}" = Premium ] ||
    problem 'NETWORK=private needs SERVICE_BUS_SKU=Premium: Standard has no private endpoints'
  if [ -n "${SUBNET_ID:-}" ] && [ -z "${ENDPOINT_SUBNET_ID:-}" ]; then
    problem 'ENDPOINT_SUBNET_ID is not set: NETWORK=private with SUBNET_ID needs a subnet for the private endpoints, too'
  fi
  ;;
*)
  problem 'NETWORK is neither public nor vnet nor private'
  ;;
esac

# whole VALUE LOW HIGH: VALUE is a whole number within the bounds
whole() {
  case $1 in '' | *[!0-9]*) return 1 ;; esac
  [ "${#1}" -lt 9 ] && [ "$1" -ge "$2" ] && [ "$1" -le "$3" ]
}

prefix=${NETWORK_PREFIX:-10.80.0.0/24}
whole "${prefix##*/}" 8 24 || problem 'NETWORK_PREFIX must be /24 or larger, such as 10.80.0.0/24'

# A network needs a provider that no resource of the template names, so Azure does not register it.
if [ "${NETWORK:-public}" != public ] && [ -n "${AZURE_SUBSCRIPTION_ID:-}" ] && command -v az >/dev/null 2>&1; then
  state=$(az provider show --subscription "$AZURE_SUBSCRIPTION_ID" --namespace Microsoft.ContainerService --query registrationState --output tsv 2>/dev/null || true)
  case $state in
  '' | Registered) ;;
  *) problem 'Microsoft.ContainerService is not registered in the subscription, and a network needs it; az provider register --namespace Microsoft.ContainerService --wait' ;;
  esac
fi

# A vault that was deleted keeps its name for seven days, unless it may be purged.
if [ -n "${AZURE_SUBSCRIPTION_ID:-}" ] && [ -n "${AZURE_ENV_NAME:-}" ] && command -v az >/dev/null 2>&1 &&
  vaults=$(az keyvault list-deleted --subscription "$AZURE_SUBSCRIPTION_ID" --resource-type vault \
    --query "[?properties.tags.\"azd-env-name\"=='$AZURE_ENV_NAME' && properties.location=='${AZURE_LOCATION:-}'].name" --output tsv 2>/dev/null); then
  if [ -n "$vaults" ] && [ "${KEY_VAULT_RECOVER:-false}" != true ]; then
    problem 'the vault of a deleted environment of this name is still there and keeps its name; azd env set KEY_VAULT_RECOVER true'
  elif [ -z "$vaults" ] && [ "${KEY_VAULT_RECOVER:-false}" = true ]; then
    problem 'KEY_VAULT_RECOVER is true and there is no deleted vault of this environment; azd env set KEY_VAULT_RECOVER false'
  fi
fi

versions=${PROJECTION_VERSIONS:-1}
for version in $(echo "$versions" | tr , ' '); do
  whole "$version" 1 999 || { problem 'PROJECTION_VERSIONS must be whole numbers from 1 to 999, separated by commas' && break; }
done
if [ "$versions" != 1 ] && [ "${SERVICE_BUS_ENTITY_KIND:-topic}" = queue ]; then
  problem 'PROJECTION_VERSIONS needs SERVICE_BUS_ENTITY_KIND=topic: a queue has no second reader'
elif [ "$versions" != 1 ] && [ -z "${PROJECTION:-}" ]; then
  problem 'PROJECTION is not set, and PROJECTION_VERSIONS names subscriptions by it; azd env set PROJECTION NAME'
elif [ -n "${PROJECTION_IMAGE:-}" ] && [ -z "${PROJECTION:-}" ]; then
  problem 'PROJECTION is not set: the name that the program in PROJECTION_IMAGE declares; azd env set PROJECTION NAME'
fi

least=${PROJECTOR_MIN_REPLICAS:-1}
most=${PROJECTOR_MAX_REPLICAS:-5}
whole "$most" 1 1000 || problem 'PROJECTOR_MAX_REPLICAS must be from 1 to 1000'
whole "$least" 0 1000 || problem 'PROJECTOR_MIN_REPLICAS must be from 0 to 1000'
if whole "$least" 0 1000 && whole "$most" 1 1000 && [ "$least" -gt "$most" ]; then
  problem 'PROJECTOR_MIN_REPLICAS is above PROJECTOR_MAX_REPLICAS'
fi
whole "${PROJECTOR_MESSAGES_PER_REPLICA:-500}" 1 99999999 || problem 'PROJECTOR_MESSAGES_PER_REPLICA must be a whole number above 0'

if [ -n "${SERVICE_BUS_REPLICA_REGION:-}" ]; then
  [ "${SERVICE_BUS_SKU:-Standard}" = Premium ] ||
    problem 'SERVICE_BUS_REPLICA_REGION needs SERVICE_BUS_SKU=Premium: Standard is not replicated'
  [ "$SERVICE_BUS_REPLICA_REGION" != "${AZURE_LOCATION:-}" ] ||
    problem 'SERVICE_BUS_REPLICA_REGION is the region itself'
  lag=${SERVICE_BUS_REPLICA_LAG_SECONDS:-300}
  if ! [ "$lag" -eq 0 ] 2>/dev/null && ! { [ "$lag" -ge 300 ] && [ "$lag" -le 86400 ]; } 2>/dev/null; then
    problem 'SERVICE_BUS_REPLICA_LAG_SECONDS is neither 0 nor from 300 to 86400, which is what Service Bus takes'
  fi
fi

# Regions with availability zones, as Azure's list had them in 2026. Elsewhere a zone-redundant account is refused, after ten minutes.
zones='
australiaeast austriaeast brazilsouth canadacentral centralindia centralus chilecentral eastasia eastus
eastus2 francecentral germanywestcentral indonesiacentral israelcentral italynorth japaneast japanwest
koreacentral malaysiawest mexicocentral newzealandnorth northeurope norwayeast polandcentral qatarcentral
southafricanorth southcentralus southeastasia spaincentral swedencentral switzerlandnorth uaenorth uksouth
westeurope westus2 westus3
'
[ -n "${AZURE_LOCATION:-}" ] || echo 'preflight: warning: AZURE_LOCATION is not set, so whether the region has availability zones is not checked' >&2
if [ -z "${STORAGE_REDUNDANCY:-}" ] && [ -n "${AZURE_LOCATION:-}" ]; then
  # shellcheck disable=SC2086,SC2116 # the lines become one
  case " $(echo $zones) " in
  *" $AZURE_LOCATION "*) ;;
  *) problem "AZURE_LOCATION has no availability zones as far as is known here: take another region, or azd env set STORAGE_REDUNDANCY Standard_LRS (Standard_ZRS if it has zones after all)" ;;
  esac
fi

if [ "$problems" -gt 0 ]; then
  exit 1
fi
