#!/usr/bin/env bash
# kubernetes.sh: what needs an API server of Kubernetes, on a real one: infra/kubernetes as a server-side dry run, the tests of the
# checkpoint store Kubernetes, and a run in which leaders are killed and stopped. kube-apiserver and etcd are built into bin from
# their Go modules, once, which takes some minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

programs=bin/kubernetes
[[ -x $programs/kube-apiserver && -x $programs/server ]] || {
  echo "kubernetes: compiling kube-apiserver and etcd, which takes some minutes" >&2
  mkdir -p "$programs"
  GOWORK=off CGO_ENABLED=0 go -C scripts/kubernetes build -ldflags='-s -w' -o "../../$programs/" tool
}

home=$(mktemp -d)
stop() {
  jobs -p | xargs -r kill 2>/dev/null || true
  wait
  rm -rf "$home"
}
trap stop EXIT

peer=$((20000 + $$ % 3000 * 3)) etcd=$((peer + 1)) api=$((peer + 2)) # below those that outgoing connections get
"$programs/server" --data-dir "$home/etcd" --unsafe-no-fsync --log-level error \
  --listen-peer-urls "http://127.0.0.1:$peer" --initial-advertise-peer-urls "http://127.0.0.1:$peer" --initial-cluster "default=http://127.0.0.1:$peer" \
  --listen-client-urls "http://127.0.0.1:$etcd" --advertise-client-urls "http://127.0.0.1:$etcd" >"$home/etcd.log" 2>&1 &
openssl genrsa -out "$home/key.pem" 2048 2>/dev/null
cat >"$home/tokens" <<'END'
administrator,administrator,1,system:masters
producer,system:serviceaccount:sluice:sluice-producer,2
END
"$programs/kube-apiserver" --etcd-servers "http://127.0.0.1:$etcd" --cert-dir "$home" --bind-address 127.0.0.1 --secure-port "$api" \
  --authorization-mode RBAC --token-auth-file "$home/tokens" --service-cluster-ip-range 10.0.0.0/24 \
  --service-account-issuer https://sluice.invalid --service-account-key-file "$home/key.pem" --service-account-signing-key-file "$home/key.pem" \
  --disable-admission-plugins ServiceAccount >"$home/api.log" 2>&1 &
for _ in {1..120}; do
  [[ $(curl -sk -H 'Authorization: Bearer administrator' "https://127.0.0.1:$api/readyz") != ok ]] || break
  kill -0 $! 2>/dev/null || break
  sleep 0.5
done
[[ $(curl -sk -H 'Authorization: Bearer administrator' "https://127.0.0.1:$api/readyz") == ok ]] || {
  tail -n 30 "$home"/*.log >&2
  exit 1
}
export KUBERNETES_API="https://127.0.0.1:$api"
GOWORK=off go -C tests/deploy/kubernetes test -count=1 -v -run RealAPIServer ./... # gives the producer its rights
go test -count=1 -v -run RealAPIServer ./producer/stores/kubernetes

cat >"$home/config" <<END
{"apiVersion": "v1", "kind": "Config", "current-context": "test",
 "contexts": [{"name": "test", "context": {"cluster": "test", "user": "producer", "namespace": "sluice-checkpoint"}}],
 "clusters": [{"name": "test", "cluster": {"server": "$KUBERNETES_API", "insecure-skip-tls-verify": true}}],
 "users": [{"name": "producer", "user": {"token": "producer"}}]}
END
go build -o "$home/services/producer" ./producer/stores/kubernetes/cmd/producer
go build -o "$home/services/projector" ./projector/cmd/projector
KUBECONFIG="$home/config" make run ONCE=1 CHECKPOINT_STORE=kubernetes CHAOS=kill-leader@3s,term-leader@8s,crash-leader@18s ARGS="--services $home/services"
