#!/bin/bash
# Builds an image with your own packages on top of the trainer's; the torch that is there stays.
#   images/packages.sh REQUIREMENTS TAG [BASE]        BASE: muster-trainer:cpu
#   images/packages.sh examples/requirements.txt muster-examples:cpu
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

fail() {
    echo "error: $1" >&2
    echo "hint: $2" >&2
    exit "${3:-1}"
}

[ $# -ge 2 ] || fail "which packages, and what to call the image?" "images/packages.sh REQUIREMENTS TAG [BASE]" 2
requirements=$1 tag=$2 base=${3:-muster-trainer:cpu}
[ -f "$requirements" ] || fail "no such file: $requirements" "one requirement a line, as for pip install -r" 2
docker image inspect "$base" >/dev/null 2>&1 || fail "no image $base here" "make image, or name another base"

# A build context with only this file: its own folder may contain large data.
context=$(mktemp -d)
log=$context/log
trap 'rm -rf "$context"' EXIT
cp "$requirements" "$context/requirements.txt"
secrets=()
while read -r option; do secrets+=("$option"); done < <("$here/secrets.sh")
if ! DOCKER_BUILDKIT=1 docker build --progress plain --tag "$tag" ${secrets[@]+"${secrets[@]}"} --file - \
    --build-arg "BASE=$base" "$context" >"$log" 2>&1 <<'DOCKERFILE'; then
ARG BASE
FROM ${BASE}
USER root
RUN --mount=type=bind,source=requirements.txt,target=/build/requirements.txt \
    --mount=type=secret,id=ca --mount=type=secret,id=pip_conf \
    if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    if [ -s /run/secrets/pip_conf ]; then export PIP_CONFIG_FILE=/run/secrets/pip_conf; fi; \
    python -m pip freeze 2>/dev/null | grep '^torch==' >/tmp/torch.txt; \
    python -m pip install --no-cache-dir --disable-pip-version-check --root-user-action ignore \
        --constraint /tmp/torch.txt --requirement /build/requirements.txt && rm /tmp/torch.txt
USER 1000
DOCKERFILE
    tail -n 20 "$log" >&2
    fail "$tag was not built" "the lines above are the build's last words"
fi
echo "image  $tag: $(($(docker image inspect --format '{{.Size}}' "$tag") / 1000000)) MB" >&2
