#!/bin/bash
# Makes the base of the cpu image without a registry: Debian packages -> a root file system -> `docker import`.
#   images/debian-base.sh [TAG]        default muster-base:bookworm; about 25 s and 170 MB
set -euo pipefail
tag=${1:-muster-base:bookworm}

# If two builds run at the same time, the second one waits, and then finds the finished base.
if command -v flock >/dev/null; then
    exec 9>"${TMPDIR:-/tmp}/muster-packages-$(id -u).lock"
    flock 9
    ! docker image inspect "$tag" >/dev/null 2>&1 || exit 0
fi

if ! command -v mmdebstrap >/dev/null; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "error: mmdebstrap is missing, and it takes root on a Debian or Ubuntu machine to install it" >&2
        echo "hint: sudo apt-get install mmdebstrap, or give an image with Python 3.11 as CPU_BASE" >&2
        exit 1
    fi
    apt-get -qq update
    apt-get -qq install -y --no-install-recommends mmdebstrap >/dev/null
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Without manuals and translations, which are a fifth of the size. The image's commands use the name `python`.
# shellcheck disable=SC2016  # the hook's $1 is mmdebstrap's: the root file system
if ! mmdebstrap --quiet --variant=minbase --include=python3,python3-venv,ca-certificates,tini,wireguard-go,wireguard-tools,iproute2 \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --customize-hook='ln -s python3 "$1/usr/bin/python"' \
    bookworm "$folder/base.tar" 2>"$folder/log"; then
    tail -n 5 "$folder/log" >&2
    echo "error: the Debian packages for $tag could not be put together" >&2
    echo "hint: check that 'apt-get update' works here, or give an image with Python 3.11 as CPU_BASE" >&2
    exit 1
fi
docker import --change 'CMD ["python"]' --message "Debian bookworm with Python" "$folder/base.tar" "$tag" >/dev/null
