#!/bin/sh
# Runs inside the build of the gpu image, as root: installs the libraries that NCCL needs for InfiniBand and RoCE.
# Without them, NCCL silently uses sockets. Optional secret: `ca` (a company's certificate authorities).
set -eu
! ldconfig -p | grep -q libibverbs.so.1 || [ ! -d /etc/libibverbs.d ] || exit 0
[ ! -s /run/secrets/ca ] || set -- -o Acquire::https::CAInfo=/run/secrets/ca
apt-get -qq "$@" update
apt-get -qq "$@" install -y --no-install-recommends libibverbs1 ibverbs-providers
rm -rf /var/lib/apt/lists/*
