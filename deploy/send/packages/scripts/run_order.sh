#!/bin/sh
# run-order USER CACHES SCRATCH VOLUME DIGEST START COMMAND...: run COMMAND, a `docker run` that carries out one order of
# packages/inside/program.py. First make the volumes CACHES (several words), SCRATCH (for wheels that this host builds
# for one install) and VOLUME (for the packages; if empty, the order installs nothing). A VOLUME that exists already was
# left incomplete by a reboot: it is removed first. Afterwards, remove VOLUME if COMMAND failed; remove SCRATCH after an
# install or a failure, unless the order can be tried again (exit code 4: no uv, 5: no index). All this happens even if
# the client is gone: COMMAND ends with its input, and no output here matters.
# START is the name of the mark of a complete VOLUME. Until the files are on the disk, the mark tells in which boot of
# the kernel it was made. Nothing waits for the disk: the kernel writes most files in its own time, which does not hold
# up the next install.
user=$1 caches=$2 scratch=$3 volume=$4 digest=$5 start=$6; shift 6
trap '' HUP PIPE
make() { name=$1; shift; docker volume create --label "muster.user=$user" "$@" "$name" >/dev/null; }
for cache in $caches; do make "$cache" --label muster.cache=packages || exit; done
now=$(date +%s)
[ -z "$scratch" ] || [ -n "$volume" ] || {
    # A command that was cut between a build and its install has left its wheels behind.
    docker volume ls --filter label=muster.cache=wheels --filter "label=muster.user=$user" \
        --format '{{.Name}} {{.Label "muster.made"}}' | while read -r name made; do
            [ "$name" = "$scratch" ] || [ $((now - ${made:-0})) -lt 86400 ] || docker volume rm "$name" >/dev/null 2>&1
        done
    make "$scratch" --label muster.cache=wheels --label "muster.made=$now" || exit
}
[ -z "$volume" ] || {
    docker volume rm --force "$volume" >/dev/null || exit
    make "$volume" --label "muster.packages=$digest" --label "muster.start=$start" || exit
}
"$@"; code=$?
goes=
[ -z "$volume" ] || [ "$code" -ne 0 ] || {
    mark=$HOME/.muster/packages/$start
    (umask 077 && mkdir -p "$HOME/.muster/packages") && { cat /proc/sys/kernel/random/boot_id 2>/dev/null || :; } >"$mark" || code=1
    [ "$code" -ne 0 ] || (sleep 30; sync && [ -e "$mark" ] && : >"$mark") </dev/null >/dev/null 2>&1 &
}
case $code in
0) [ -z "$volume" ] || goes=$scratch ;;
4 | 5) goes=$volume ;;
*) goes="$scratch $volume" ;;
esac
# The engine may still be removing the container.
for name in $goes; do
    for _ in 1 2 3 4 5 6 7 8 9 10; do docker volume rm --force "$name" >/dev/null 2>&1 && break; sleep 1; done
done
exit "$code"
