#!/usr/bin/env bash
# images.sh: builds the images of both services and of the embedded servers, and runs the pipeline once (tests/images).
#
# A running Docker engine is used as it is: it has the base images, or pulls them. If none is running, root starts one
# for this run, if dockerd and debootstrap are installed (Debian: apt-get install docker.io debootstrap). That one pulls
# nothing: the base images are made here, under the names that the Dockerfiles use. It has no bridge and leaves the
# machine's firewall alone; builds and containers use the machine's network. What it holds is kept for the next run in
# IMAGES_CACHE (~/.cache/sluice/images).
#
# Without Docker it reports that and succeeds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

run_tests() { IMAGES=1 IMAGES_MADE=$made go test -count 1 -v -timeout 20m ./tests/images; }

made= # 1: the base images are made here, so their digests differ from those in the Dockerfiles
if docker info >/dev/null 2>&1; then
  echo 'images: with the Docker engine that answers' >&2
  run_tests
  exit
fi
if ! command -v dockerd >/dev/null; then
  echo 'images: no Docker engine answers and dockerd is not installed, so the images are not tested' >&2
  exit 0
fi
for needed in docker containerd debootstrap flock; do
  if ! command -v "$needed" >/dev/null; then
    echo "images: no Docker engine answers, and to start one here $needed must be installed" >&2
    exit 1
  fi
done
if [[ $EUID -ne 0 ]]; then
  echo 'images: no Docker engine answers, and only root can start one: start it, or run this as root' >&2
  exit 1
fi

cache=${IMAGES_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice/images}
mkdir -p "$cache"
exec {lock}>"$cache/lock"
flock "$lock" # one engine at a time has these files
work=$(mktemp -d)
engine=
stop() {
  if [[ -n $engine ]]; then
    kill "$engine" 2>/dev/null || true
    wait "$engine" || true
  fi
  umount "$work"/exec/netns/* 2>/dev/null || true # of containers in the machine's network; dockerd leaves it mounted
  rm -rf "$work"
}
trap stop EXIT

export DOCKER_HOST=unix://$work/docker.sock
dockerd --data-root "$cache/engine" --exec-root "$work/exec" --pidfile "$work/pid" --host "$DOCKER_HOST" \
  --iptables=false --ip6tables=false --bridge=none {lock}>&- >"$work/dockerd.log" 2>&1 &
engine=$!
for ((tries = 0; ; tries++)); do
  if docker info >/dev/null 2>&1; then break; fi
  if ((tries == 120)) || ! kill -0 "$engine" 2>/dev/null; then
    echo 'images: dockerd does not start:' >&2
    tail -n 20 "$work/dockerd.log" >&2
    exit 1
  fi
  sleep 0.5
done

# debian SUITE: the root of a minimal Debian with root certificates, made once.
debian() {
  local root=$cache/$1
  if [[ ! -e $root.made ]]; then
    rm -rf "$root"
    echo "images: making Debian $1" >&2
    debootstrap --variant=minbase --include=ca-certificates "$1" "$root" >"$work/debootstrap.log" 2>&1 || {
      tail -n 20 "$work/debootstrap.log" >&2
      return 1
    }
    rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
    : >"$root.made"
  fi
  echo "$root"
}

# golang NAME: Debian and the version of Go in the name, with this machine's settings of Go, the modules that it already has, and
# the compiled packages of the services: what was compiled with the same flags need not be compiled again in the build.
golang() {
  local version=${1#*:} root goroot setting
  local settings=()
  root=$(debian "${version##*-}")
  version=${version%-*}
  goroot=$(GOTOOLCHAIN=go$version go env GOROOT)
  echo "images: making $1 of $goroot" >&2
  for setting in GOSUMDB GONOSUMDB GOPRIVATE GONOPROXY GOINSECURE; do
    settings+=(--change "ENV $setting=\"$(go env $setting)\"")
  done
  GOTOOLCHAIN=go$version GOCACHE=$cache/go-build CGO_ENABLED=0 \
    go build -trimpath -tags grpcnotrace -o "$work/bin/" ./producer/cmd/producer ./projector/cmd/projector ./tests/emulator/cmd/sluice-emulator
  # In the form in which a module proxy serves them: everything that is to be loaded, and of the rest the go.mod files.
  # The tests' own modules are in no image.
  sed -e "s|\./|$PWD/|" -e '/\/tests$/d' go.work >"$work/go.work"
  cp go.work.sum "$work/"
  {
    GOWORK=$work/go.work go mod download -json | sed -nE 's/^\t"(Info|GoMod|Zip)": "(.*)",?$/\2/p'
    find "$(go env GOMODCACHE)/cache/download" \( -name '*.mod' -o -name '*.info' -o -name list \) -type f
  } | sed "s|^$(go env GOMODCACHE)/cache/download/||" | sort -u >"$work/modules"
  tar -C "$root" -cf "$work/root.tar" .
  tar -C "$(go env GOMODCACHE)/cache/download" --transform 's|^|modules/|' -rf "$work/root.tar" -T "$work/modules"
  tar -C "$goroot" --exclude ./test --exclude ./api --exclude ./doc --transform 's|^\.|usr/local/go|' -rf "$work/root.tar" .
  tar -C "$cache/go-build" --transform 's|^\.|root/.cache/go-build|' -rf "$work/root.tar" .
  docker import --change 'ENV PATH=/go/bin:/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
    --change 'ENV GOPATH=/go GOTOOLCHAIN=local' --change "ENV GOPROXY=file:///modules,$(go env GOPROXY)" "${settings[@]}" \
    --change "LABEL made-of=$2" --change 'WORKDIR /go' "$work/root.tar" "$1" >/dev/null
  rm "$work/root.tar"
}

# distroless NAME: users, root certificates, and places to write to.
distroless() {
  local root
  echo "images: making $1" >&2
  root=$(debian bookworm)
  mkdir -p "$work/static"/{etc/ssl/certs,home/nonroot,tmp}
  cp "$root/etc/ssl/certs/ca-certificates.crt" "$work/static/etc/ssl/certs/"
  printf 'root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n' \
    >"$work/static/etc/passwd"
  printf 'root:x:0:\nnobody:x:65534:\nnonroot:x:65532:\n' >"$work/static/etc/group"
  chown 65532:65532 "$work/static/home/nonroot"
  chmod 1777 "$work/static/tmp"
  tar -C "$work/static" -c . | docker import --change 'USER 65532' --change 'WORKDIR /home/nonroot' \
    --change 'ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt' --change "LABEL made-of=$2" - "$1" >/dev/null
}

# What an image is made of: this script, and the modules.
made_of=$(cat scripts/images.sh go.work ./*/go.mod ./*/go.sum | cksum | tr ' ' -)
mapfile -t names < <(sed -nE 's/^FROM ([^ @]+).*/\1/p' producer/Dockerfile projector/Dockerfile tests/emulator/Dockerfile | sort -u)
for name in "${names[@]}"; do
  if [[ $(docker image inspect -f '{{index .Config.Labels "made-of"}}' "$name" 2>/dev/null) == "$made_of" ]]; then continue; fi
  case $name in
  */golang:*) golang "$name" "$made_of" ;;
  */distroless/static-*) distroless "$name" "$made_of" ;;
  *)
    echo "images: $name is not known here: add to scripts/images.sh how to make it" >&2
    exit 1
    ;;
  esac
done
made=1
run_tests
