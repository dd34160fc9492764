#!/bin/sh
# run-order USER CACHES SCRATCH VOLUME DIGEST START COMMAND...: runs COMMAND, a `docker run` that does one order of
# packages/inside/program.py. It makes the volumes CACHES (words), SCRATCH (wheels that this host builds, for one install)
# and VOLUME (the packages; empty: the order installs nothing). It removes VOLUME if COMMAND fails, and SCRATCH after an
# install or a failure, but where the order can be tried again (4: no uv, 5: no index). It does so too if the client is
# gone: COMMAND ends with its input, and no write here matters. A VOLUME that is there already was left half by a reboot.
# START is the name of the mark of a whole VOLUME. It says in which boot of the kernel it was made, until its files are on the disk:
# nobody waits for that, and the kernel writes most of them in its own time, beside which the next install is not held up.
user=$1 caches=$2 scratch=$3 volume=$4 digest=$5 start=$6; shift 6
trap '' HUP PIPE
make() { name=$1; shift; docker volume create --label "muster.user=$user" "$@" "$name" >/dev/null; }
for cache in $caches; do make "$cache" --label muster.cache=packages || exit; done
now=$(date +%s)
[ -z "$scratch" ] || [ -n "$volume" ] || {
    # A command that was cut between a build and its install has left its wheels.
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
# The engine may still be at work on removing the container.
for name in $goes; do
    for _ in 1 2 3 4 5 6 7 8 9 10; do docker volume rm --force "$name" >/dev/null 2>&1 && break; sleep 1; done
done
exit "$code"
