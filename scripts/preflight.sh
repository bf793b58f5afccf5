#!/bin/sh
# Run by azd before it provisions: says everything that is missing, at once.
# azd hands over the variables of its environment. Values are never printed.
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
  echo 'preflight: warning: ALERT_EMAIL is not set, so alerts are in the portal and wake nobody; azd env set ALERT_EMAIL ADDRESS' >&2

required MONGODB_DATABASE 'the database to watch; azd env set MONGODB_DATABASE NAME'
required MONGODB_COLLECTION 'the collection to watch; azd env set MONGODB_COLLECTION NAME'

case ${MONGO_MODE:-external} in
external)
  required SOURCE_MONGODB_URI 'a connection string; azd env set-secret SOURCE_MONGODB_URI'
  ;;
documentdb)
  required DOCUMENTDB_PASSWORD 'of the new cluster, 8 characters or more; azd env set-secret DOCUMENTDB_PASSWORD'
  ;;
*)
  problem 'MONGO_MODE is neither external nor documentdb'
  ;;
esac

case ${NETWORK:-public} in
public) ;;
private)
  [ "${SERVICE_BUS_SKU:-Standard}" = Premium ] ||
    problem 'NETWORK=private needs SERVICE_BUS_SKU=Premium: Standard has no private endpoints'
  ;;
*)
  problem 'NETWORK is neither public nor private'
  ;;
esac

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
if [ -z "${STORAGE_REDUNDANCY:-}" ] && [ -n "${AZURE_LOCATION:-}" ]; then
  case " $(echo $zones) " in
  *" $AZURE_LOCATION "*) ;;
  *) problem "AZURE_LOCATION has no availability zones as far as is known here: take another region, or azd env set STORAGE_REDUNDANCY Standard_LRS (Standard_ZRS if it has zones after all)" ;;
  esac
fi

if [ "$problems" -gt 0 ]; then
  exit 1
fi
