#!/bin/sh
# start FOLDER OWNER START NEW PYTHON PATIENCE KEEP CLAIM OWN TEXT IMAGE WAITS COMMAND...: makes the run folder, runs COMMAND, a
# `docker run` of IMAGE that makes a container with the label muster.start=START, and gives the container its secrets within
# PATIENCE seconds.
#
# Everybody on a host can read command lines, so a user's variables arrive on standard input, in base64: one line for
# `docker run --env-file`, one for the secrets; with OWN, a third one for make_claims. A line without its end (a cut connection)
# does not count. Secrets go into a running container and nowhere else. If a container waits for them and cannot get them, this
# script removes it, even if the client is gone: then a write fails.
#
# A start may still be in progress after a `remove`, when its caller is gone. So `remove` deletes the mark first, and a start
# without its mark undoes itself. It removes only containers with its own label, and a folder that it made: two starts may have
# the same id, and hosts may share a home.
folder=$1 owner=$2 start=$3 new=$4 python=$5 patience=$6 keep=$7 claim=$8 mark=$1=$3.starting made=; shift 8
own=$1 text=$2 image=$3 waits=$4 tar= written=; shift 4
. ./claims_function.sh
. ./claim_places_function.sh
IFS= read -r variables && IFS= read -r secrets && { [ -z "$own" ] || IFS= read -r tar; } || { echo "not all of the variables arrived" >&2; exit 1; }
umask 077
# shellcheck disable=SC2317,SC2329  # the trap calls it
end() {
    code=$?; rm -f -- "$mark"; [ "$code" -ne 0 ] || return
    docker ps --all --quiet --no-trunc --filter "label=muster.start=$start" |
        xargs -r docker rm --force --volumes >/dev/null
    [ -z "$written" ] || rm -f -- "$written" "$written.lock"
    [ -z "$made" ] || rm -rf -- "$made"
}
trap end EXIT; trap 'exit 1' HUP INT TERM PIPE
(umask 077 && mkdir -p -- "${folder%/*}") && chmod -- 700 "${folder%/*}" || exit
[ ! -L "$folder" ] || { echo "$folder is a link: a run's folder must not be one" >&2; exit 1; }
if mkdir -- "$folder" 2>/dev/null; then made=$folder
elif [ -n "$new" ]; then echo "$folder exists already: another start has that name" >&2; exit 1; fi
: >"$mark" || exit
[ -z "$made" ] || (cd -- "$folder" && mkdir nodes outcome ranks logs) || exit
# KEEP: the paths, one on each line, that COMMAND mounts from below FOLDER/keep. An earlier start of the run may have put links
# there, which the engine would follow, so this script enters folder by folder. The run's earlier containers are gone, so nothing
# changes the folders meanwhile; the containers of this start see FOLDER/keep read-only.
printf '%s\n' "$keep" | (
    set -f; IFS=/
    while read -r path; do
        [ -z "$path" ] || (cd -P -- "$folder" && for part in keep$path; do
            [ ! -L "$part" ] && { [ -d "$part" ] || mkdir -- "$part"; } && cd -P -- "./$part" || exit
        done) || { echo "error: $folder/keep$path is not a folder: look at it there" >&2; exit 1; }
    done
) || exit
[ -z "$owner" ] || chown -hR -- "$owner" "$folder" || exit
# CLAIM holds the container's GPUs for us until the container has them (claim.sh). OWN with TEXT is the node's own claim; of all
# claims, its container gets only this one: the file that its agent keeps locked. A node that waits writes into it what it takes,
# and reads the others' claims. Anybody who looks sees one of the two claims, because OWN exists before we check CLAIM.
if [ -n "$own" ]; then
    make_claims "$start" "$tar" "$image" && write_claim "$own" "$text" "${owner#*:}" || exit
    shift 3
    [ -z "$waits" ] || set -- --mount "type=bind,source=$written,target=/muster/claim" \
        --mount "type=bind,source=${claims%/},target=/muster/claims,readonly" "$@"
    set -- docker run --detach --mount "type=bind,source=$written.lock,target=/muster/claim.lock" "$@"
fi
if [ -n "$claim" ]; then
    [ -n "$(find "/var/tmp/muster-claims.$claim" "$claims$claim" -mmin -1 2>/dev/null)" ] ||
        { echo "error: its GPUs are no longer claimed: the connection was cut" >&2; exit 1; }
    # CLAIM is older than the folder of claims, so a node that waits in a container did not see it.
    [ ! -e "/var/tmp/muster-claims.$claim" ] ||
        [ -z "$(rivals "$(printf %s "$text" | grep -o 'GPU-[0-9A-Za-z-]*' | tr '\n' ,)" "${claim##*-}")" ] ||
        { echo "error: its GPUs have been taken meanwhile" >&2; exit 1; }
fi
# The end of a pipe does not show that its beginning failed: the container would start without its variables.
command -v base64 >/dev/null || { echo "error: base64: not found" >&2; exit 1; }
id=$(echo "$variables" | base64 -d | "$@") || exit
[ -z "$secrets" ] || {
    # Read by trainer/node/agent/handover.py. `echo` is built into every shell, so the secrets appear on no command line.
    echo "$secrets" | base64 -d | docker exec --interactive "$id" sh -c "$python" sh -P -m muster.trainer.node handover "$patience" & taking=$!
    while echo "$id" || exit; kill -0 "$taking" 2>/dev/null; do sleep 0.1; done
    wait "$taking" || {
        echo "error: it did not take its secrets ($?); its console: $(docker logs --tail 1 "$id" 2>&1)" >&2; exit 1; }
    echo "$id" || exit
}
[ -e "$mark" ] || { echo "removed while it was starting" >&2; exit 1; }
