#!/bin/bash
# Builds the image of a rack node (Debian with a real OpenSSH server and a real Docker engine), and prints its tag.
#   DEBIAN=trixie          the release, and with it the engine: trixie has Docker 26.1, forky 28.5 (as of November 2026)
#   rack/image.sh          built once (about 30 s, 400 MB), from a registry's Debian if one answers, else from packages
set -euo pipefail
release=${DEBIAN:-trixie}
packages="docker.io docker-cli openssh-server iproute2 netcat-openbsd iptables procps python3 sudo tini"
# The tag contains this script's checksum, so that a changed list of packages makes a new image.
tag=muster-node:$release-$(cksum <"$0" | cut -d ' ' -f 1)

say() { echo "rack  $*" >&2; }

fail() {
    echo "error: $1" >&2
    echo "hint: $2" >&2
    exit 1
}

# Two machines must never have the same host keys, so every node makes its own at its first boot.
finish='rm -f /etc/ssh/ssh_host_* && useradd --create-home --shell /bin/bash --groups docker muster && '
finish+='echo "muster ALL=(ALL) NOPASSWD: ALL" >/etc/sudoers.d/muster'
metadata=("LABEL muster.rack.image=$release" 'CMD ["tini", "--", "/usr/local/sbin/rack-node"]')

from_registry() {
    docker build --quiet --tag "$tag" - >/dev/null <<DOCKERFILE
FROM debian:$release-slim
RUN apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $packages && \
    rm -rf /var/lib/apt/lists/* && $finish
$(printf '%s\n' "${metadata[@]}")
DOCKERFILE
}

# The mirror that this machine's apt uses, if this is Debian; else mmdebstrap's default.
own_mirror() {
    local codename
    # shellcheck source=/dev/null
    codename=$(. /etc/os-release && [ "$ID" = debian ] && echo "$VERSION_CODENAME") || return 0
    # shellcheck disable=SC2016  # apt fills it in
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Release: $codename" 'Component: main' | head -n 1
}

from_packages() {
    local folder mirror change changes=()
    # If two builds from packages run at the same time (also images/debian-base.sh), the second waits, and finds the
    # image.
    if command -v flock >/dev/null; then
        exec 9>"${TMPDIR:-/tmp}/muster-packages-$(id -u).lock"
        flock 9
        ! docker image inspect "$tag" >/dev/null 2>&1 || return 0
    fi
    if ! command -v mmdebstrap >/dev/null; then
        if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
            fail "debian:$release-slim cannot be pulled from a registry, and mmdebstrap is missing" \
                "as root on Debian or Ubuntu: apt-get install mmdebstrap debian-archive-keyring"
        fi
        apt-get -qq update
        apt-get -qq install -y --no-install-recommends mmdebstrap debian-archive-keyring >/dev/null
    fi
    mirror=$(own_mirror)
    folder=$(mktemp -d)
    # shellcheck disable=SC2064  # expand the name now: the local variable is gone at exit
    trap "rm -rf '$folder'" EXIT
    # A frozen mirror, such as some companies have, is good enough, although a moving release soon counts as expired
    # there.
    if ! mmdebstrap --quiet --variant=minbase --include="${packages// /,}" \
        --aptopt='Acquire::Check-Valid-Until "false"' \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        --customize-hook="chroot \"\$1\" sh -ec '$finish'" \
        "$release" "$folder/node.tar" ${mirror:+"$mirror"} 2>"$folder/log"; then
        tail -n 5 "$folder/log" >&2
        fail "the Debian packages of a rack node could not be put together" "check that 'apt-get update' works here"
    fi
    for change in "${metadata[@]}"; do
        changes+=(--change "$change")
    done
    docker import "${changes[@]}" --message "Debian $release, sshd, dockerd" "$folder/node.tar" "$tag" >/dev/null
}

if ! docker image inspect "$tag" >/dev/null 2>&1; then
    started=$SECONDS
    say "building the nodes' image $tag (about 30 s, once)"
    if docker pull --quiet "debian:$release-slim" >/dev/null 2>&1; then from_registry; else from_packages; fi
    say "$tag is ready in $((SECONDS - started)) s: $(($(docker image inspect --format '{{.Size}}' "$tag") / 1000000)) MB"
fi
echo "$tag"
