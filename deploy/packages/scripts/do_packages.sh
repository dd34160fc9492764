#!/bin/sh
# do-packages CACHE VOLUME DIGEST START USER COMMAND...: runs COMMAND, a `docker run` that does one order of
# packages/program.py, with the volume CACHE. VOLUME (empty: the order only locks) gets the packages: this script makes
# it, and removes it if COMMAND fails, so nothing half is ever used. It does so too if the client is gone: COMMAND ends
# with its input, and no write here matters. A VOLUME that is there already was left half by a reboot.
cache=$1 volume=$2 digest=$3 start=$4 user=$5; shift 5
trap '' HUP PIPE
docker volume create --label muster.cache=packages --label "muster.user=$user" "$cache" >/dev/null || exit
[ -z "$volume" ] || {
    docker volume rm --force "$volume" >/dev/null || exit
    docker volume create --label "muster.packages=$digest" --label "muster.user=$user" --label "muster.start=$start" \
        "$volume" >/dev/null || exit
}
"$@"; code=$?
[ -n "$volume" ] || exit "$code"
[ "$code" -ne 0 ] || { mkdir -p "$HOME/.muster/packages" && : >"$HOME/.muster/packages/$start"; } || code=1
[ "$code" -ne 0 ] || exit 0
# The engine may still be at work on removing the container.
for _ in 1 2 3 4 5 6 7 8 9 10; do docker volume rm --force "$volume" >/dev/null 2>&1 && break; sleep 1; done
exit "$code"
