#!/bin/sh
# Runs inside the build, as root: installs what `fab deploy --overlay` needs for a run's own network. An image without
# it runs everything else, so it is no failure if the base's packages lack it. Optional secret: `ca` (a company's
# certificate authorities).
set -eu
have() { command -v wireguard-go >/dev/null && command -v wg >/dev/null && command -v ip >/dev/null; }
! have || exit 0
[ ! -s /run/secrets/ca ] || set -- -o Acquire::https::CAInfo=/run/secrets/ca
apt-get -qq "$@" update && apt-get -qq "$@" install -y --no-install-recommends wireguard-go wireguard-tools iproute2 ||
    echo "wireguard-go cannot be installed here: this image is one without --overlay" >&2
rm -rf /var/lib/apt/lists/* /var/cache/apt/*
