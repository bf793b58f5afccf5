#!/usr/bin/env bash
# Runs scripts/compose.yaml:
#   compose.sh up      everything, built from this checkout; with PROJECTION=NAME and PROJECTION_IMAGE=IMAGE, the projection is that program
#   compose.sh down    stops and removes it
#   compose.sh test    only the servers; the end-to-end check against them; down
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
docker compose version >/dev/null 2>&1 || {
  echo 'compose: Docker with its compose command is not here; "make run" needs none' >&2
  exit 1
}

# The SQL server behind the emulator wants a password. It is made up once, and
# git ignores the file.
env_file=scripts/.env
if [[ ! -s $env_file ]]; then
  (umask 077 && printf 'SQL_PASSWORD=Aa1-%s\n' "$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')" >"$env_file")
fi
compose() { docker compose --file scripts/compose.yaml --env-file "$env_file" "$@"; }

# wait_for URL: the emulator's own word that it serves; 3 minutes at most.
wait_for() {
  local deadline=$((SECONDS + 180))
  until curl --silent --fail --max-time 5 --output /dev/null "$1"; do
    if ((SECONDS >= deadline)); then
      echo "compose: $1 does not answer" >&2
      compose logs --tail 50 servicebus sql >&2
      return 1
    fi
    sleep 2
  done
}

case ${1:-} in
up)
  profiles=(--profile services)
  if [[ -n ${PROJECTION_IMAGE:-} ]]; then
    [[ -n ${PROJECTION:-} ]] || {
      echo 'compose: PROJECTION is not set: the name that the program in PROJECTION_IMAGE declares' >&2
      exit 2
    }
    export PROJECTION PROJECTION_IMAGE PROJECTION_URL=http://127.0.0.1:8088
    profiles+=(--profile program)
  fi
  compose "${profiles[@]}" up --detach --build
  wait_for http://127.0.0.1:5300/health
  compose "${profiles[@]}" ps
  ;;
down)
  compose --profile services --profile program down --volumes --remove-orphans
  ;;
test)
  # Under a name of its own; the services of "up" would take its messages, and
  # the ports are the same, so "up" must be down.
  export COMPOSE_PROJECT_NAME=sluice-test
  trap 'compose down --volumes --remove-orphans' EXIT
  compose up --detach --wait mongo azurite
  compose up --detach servicebus
  wait_for http://127.0.0.1:5300/health
  export MONGODB_URI='mongodb://127.0.0.1:27017/?replicaSet=rs0&directConnection=true'
  export SERVICE_BUS_CONNECTION_STRING='Endpoint=sb://127.0.0.1;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;'
  export BLOB_CONNECTION_STRING='DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1;'
  # Both services as processes, events in, leaders killed, the read model compared.
  go run ./tests/cmd/local --external --once --quiet --chaos kill-leader@3s,term-leader@9s
  ;;
*)
  echo 'usage: compose.sh up|down|test' >&2
  exit 2
  ;;
esac
