#!/bin/bash
# `make image`: builds muster-trainer:cpu (TARGET=gpu: muster-trainer:gpu), also behind a company's proxy and
# without any registry. It prints nothing if there was nothing to do.
#   TARGET=cpu|gpu   CPU_BASE=, GPU_BASE= another base image   TORCH_INDEX= an index with CPU builds of torch
set -euo pipefail
cd "$(dirname "$0")/.."
target=${TARGET:-cpu}
tag=muster-trainer:$target
debian_base=muster-base:bookworm
wheels=requirements/wheels

say() { echo "image  $*" >&2; }

fail() {
    echo "error: $1" >&2
    echo "hint: $2" >&2
    exit 1
}

has_image() { docker image inspect "$1" >/dev/null 2>&1; }

pinned_base() { sed -n "s/^ARG ${1}=//p" Dockerfile; }

# Copies wheels from the user's pip folder (find-links), if torch is there: the build cannot see that folder itself.
collect_wheels() {
    local folder wheel place
    for folder in $(python3 -m pip config get global.find-links 2>/dev/null || true) ${PIP_FIND_LINKS:-}; do
        compgen -G "$folder/torch-*.whl" >/dev/null || continue
        for wheel in "$folder"/*.whl; do
            place=$wheels/${wheel##*/}
            # Another build may do the same at this moment, so each file appears under its name only when it is
            # complete.
            [ -e "$place" ] || ln "$wheel" "$place" 2>/dev/null || { cp "$wheel" "$place.$$" && mv -f "$place.$$" "$place"; }
        done
    done
}

# The pinned base, if a registry answers; else a base made from Debian packages, which is used from then on.
choose_cpu_base() {
    local pinned
    pinned=$(pinned_base CPU_BASE)
    if [ -n "${CPU_BASE:-}" ]; then echo "$CPU_BASE"; return; fi
    if has_image "$debian_base"; then echo "$debian_base"; return; fi
    if has_image "$pinned" || docker pull --quiet "$pinned" >/dev/null 2>&1; then echo "$pinned"; return; fi
    say "${pinned%@*} cannot be pulled here; building the base from Debian packages instead (about 30 s)"
    images/debian-base.sh "$debian_base" || return 1
    echo "$debian_base"
}

docker info >/dev/null 2>&1 || fail "no Docker engine answers" "start Docker, or train without it: make up BACKEND=processes"
docker buildx version >/dev/null 2>&1 || fail "docker buildx is missing" "install your distribution's docker-buildx package"

arguments=(--build-arg "FLAVOUR=$target")
if [ "$target" = cpu ]; then
    base=$(choose_cpu_base)
    arguments+=(--build-arg "CPU_BASE=$base" --build-arg "TORCH_INDEX=${TORCH_INDEX:-}")
elif [ -n "${GPU_BASE:-}" ]; then
    arguments+=(--build-arg "GPU_BASE=$GPU_BASE")
fi
collect_wheels
before=$(docker image inspect --format '{{.Id}}' "$tag" 2>/dev/null || true)
[ -n "$before" ] || say "building $tag (about a minute)"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
started=$SECONDS
while read -r option; do arguments+=("$option"); done < <(images/secrets.sh)
if ! DOCKER_BUILDKIT=1 docker build --progress plain --tag "$tag" ${arguments[@]+"${arguments[@]}"} . >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    fail "$tag was not built" "the lines above are the build's last words; behind a proxy set PIP_CERT and pip's own configuration"
fi
after=$(docker image inspect --format '{{.Id}}' "$tag")
if [ "$before" != "$after" ]; then
    size=$(docker image inspect --format '{{.Size}}' "$tag")
    say "$tag is ready: $((size / 1000000)) MB in $((SECONDS - started)) s"
    # Remove the image that this one replaces, which has no name any more; an image in use, or with another tag, is
    # kept.
    [ "$(docker image inspect --format '{{len .RepoTags}}' "$before" 2>/dev/null)" != 0 ] || docker rmi "$before" >/dev/null 2>&1 || true
fi
