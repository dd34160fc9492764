#!/bin/bash
# `make rack-down`: removes the rack's containers and everything in them, its volumes, network and keys.
#   RACK=NAME    a rack with another name than `rack`   ALL=1    all racks on this engine, and the nodes' image
set -euo pipefail
cd "$(dirname "$0")"
name=${RACK:-rack}
filter=label=muster.rack=$name
[ -z "${ALL:-}" ] || filter=label=muster.rack

if ! docker version >/dev/null 2>&1; then
    echo "error: no Docker engine answers: there may be a rack, but it cannot be removed" >&2
    echo "hint: start Docker, then: make rack-down" >&2
    exit 1
fi

# Removes only files that up.sh writes, because the folder's name comes from a label.
forget() {
    rm -f "$1"/{ssh_config,known_hosts,id_ed25519,id_ed25519.pub,start-*.log}
    rmdir "$1" 2>/dev/null || true
}

states=$(docker ps -a --filter "$filter" --format '{{.Label "muster.rack.state"}}' | sort -u)
containers=$(docker ps -aq --filter "$filter")
# Unquoted on purpose: one word for each object.
# shellcheck disable=SC2086
[ -z "$containers" ] || docker rm --force --volumes $containers >/dev/null
for kind in volume network; do
    for object in $(docker "$kind" ls -q --filter "$filter"); do
        docker "$kind" rm "$object" >/dev/null
    done
done
while read -r state; do
    [ -z "$state" ] || forget "$state"
done <<<"$states"
if [ "$name" = rack ]; then forget .state; else forget ".state-$name"; fi
if [ -n "${ALL:-}" ]; then
    for image in $(docker images -q --filter label=muster.rack.image | sort -u); do
        docker rmi --force "$image" >/dev/null
    done
fi
# shellcheck disable=SC2086
set -- $containers
if [ $# -gt 0 ]; then echo "rack  $# nodes removed" >&2; else echo "rack  none was up" >&2; fi
