#!/usr/bin/env bash
# release.sh vX.Y.Z: makes the release of every module as one commit with its tags, here, and prints how to publish it.
#
# The modules require each other in the new version, with the sums of what is tagged; the changelog's
# "Unreleased" becomes the release; and the go command must get modules with these sums from the tags.
# Nothing leaves this machine. If anything fails, the branch is restored.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() {
  echo "release: $*" >&2
  exit 1
}

version=${1:-}
[[ $# -eq 1 && $version =~ ^v[01]\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$ ]] || {
  echo 'usage: scripts/release.sh vX.Y.Z, X being 0 or 1: from v2 on the paths of the modules must end in /v2' >&2
  exit 2
}
tags=("$version" "shared/$version" "tests/emulator/$version" "producer/$version" "producer/stores/kubernetes/$version" "producer/stores/redis/$version" "projector/$version")
[[ -z $(git status --porcelain) ]] || die 'there are changes that are not committed: commit or stash them first'
for tag in "${tags[@]}"; do
  ! git rev-parse -q --verify "refs/tags/$tag" >/dev/null || die "tag $tag is there already: choose the next version"
done
grep -qx '## Unreleased' CHANGELOG.md || die 'CHANGELOG.md has no line "## Unreleased": add one above what is released'
[[ -n $(awk '/^## /{ p = $0 == "## Unreleased"; next } p && /^- /' CHANGELOG.md) ]] || die 'CHANGELOG.md lists nothing under "## Unreleased"'

before=$(git rev-parse HEAD)
undo() {
  git reset -q --hard "$before"
  git tag -d "${tags[@]}" >/dev/null 2>&1 || true
}
trap undo ERR

go run ./tests/cmd/modules -version "$version"
sed -i.before "s/^## Unreleased\$/## Unreleased\n\n## ${version#v} - $(date -u +%F)/" CHANGELOG.md
rm CHANGELOG.md.before
go list work >/dev/null
git commit -qam "Release $version"
for tag in "${tags[@]}"; do git tag -a -m "Release $version" "$tag"; done

# The go command reads the tags as it will when they are published, with this folder as the repository's address.
proof=$(mktemp -d)
trap 'undo; rm -rf "$proof"' ERR
(
  cd "$proof"
  export GOWORK=off GOFLAGS=-modcacherw GOMODCACHE=$proof/cache GOPRIVATE=github.com/sluice-cdc/sluice
  export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$OLDPWD/.insteadOf" GIT_CONFIG_VALUE_0=https://github.com/sluice-cdc/sluice
  for module in shared tests/emulator producer projector; do # those that others require
    go mod download -json "github.com/sluice-cdc/sluice/$module@$version" | sed -nE 's/.*"(Path|Sum)": "(.*)".*/\2/p' | paste -sd' '
  done
) >"$proof/tagged"
while read -r path sum; do
  grep -qxF "$path $version $sum" tests/go.sum || {
    undo
    die "the tag of $path has a sum that differs from tests/go.sum: this is a fault of tests/cmd/modules"
  }
done <"$proof/tagged"
rm -rf "$proof"
trap - ERR

echo "release: $version is committed and tagged; to publish it:"
echo "  git push --atomic origin HEAD ${tags[*]}"
