#!/bin/sh
# start FOLDER OWNER START NEW PYTHON PATIENCE KEEP COMMAND...: makes the run folder, runs COMMAND, which makes a container with
# the label muster.start=START, and gives it its secrets within PATIENCE seconds.
#
# What a user's variables are stays off command lines, which everybody on a host can read: they come over standard input,
# in base64, a line each for `docker run --env-file` and for the secrets. A line that a cut connection left without its
# end is no line. Secrets go into a container that runs, and nowhere else. One that waits for them and cannot get them is
# removed, also where nobody listens any more: then a word cannot be written.
#
# A start may go on after a `remove`, with nobody left who waits for it. So `remove` takes the mark away first, and a start
# whose mark is gone undoes itself. It undoes what has its own label, and a folder that it made: of two starts with one
# id, or in a home that hosts share, each has its own.
folder=$1 owner=$2 start=$3 new=$4 python=$5 patience=$6 keep=$7 mark=$1=$3.starting made=; shift 7
. ./hand_in_function.sh
IFS= read -r variables && IFS= read -r secrets || { echo "not all of the variables arrived" >&2; exit 1; }
umask 077
# shellcheck disable=SC2317,SC2329  # the trap calls it
end() {
    code=$?; rm -f -- "$mark"; [ "$code" -ne 0 ] || return
    docker ps --all --quiet --no-trunc --filter "label=muster.start=$start" |
        xargs -r docker rm --force --volumes >/dev/null
    [ -z "$made" ] || rm -rf -- "$made"
}
trap end EXIT; trap 'exit 1' HUP INT TERM PIPE
mkdir -p -- "${folder%/*}" || exit
[ ! -L "$folder" ] || { echo "$folder is a link: a run's folder must be one itself" >&2; exit 1; }
if mkdir -- "$folder" 2>/dev/null; then made=$folder
elif [ -n "$new" ]; then echo "$folder is there already: another start has that name" >&2; exit 1; fi
: >"$mark" || exit
[ -z "$made" ] || (cd -- "$folder" && mkdir nodes outcome ranks logs) || exit
# KEEP: paths, a line each, that COMMAND mounts from below FOLDER/keep. An earlier start of the run may have left links in
# their place, which the engine would follow: so we go there folder by folder. The run's containers are gone, so none of
# them moves us; in this start's containers FOLDER/keep is mounted read-only.
printf '%s\n' "$keep" | (
    set -f; IFS=/
    while read -r path; do
        [ -z "$path" ] || (cd -P -- "$folder" && for part in keep$path; do
            [ ! -L "$part" ] && { [ -d "$part" ] || mkdir -- "$part"; } && cd -P -- "./$part" || exit
        done) || { echo "error: $folder/keep$path is no folder: look at it there" >&2; exit 1; }
    done
) || exit
[ -z "$owner" ] || chown -hR -- "$owner" "$folder" || exit
# The number that run_user.py chose is kept for later runs.
case ${owner%%:*} in
6???? | 2?????????) [ -e "$HOME/.muster/uid" ] || echo "${owner%%:*}" >"$HOME/.muster/uid" || exit ;;
esac
id=$(echo "$variables" | base64 -d | "$@") || exit
[ -z "$secrets" ] || {
    # shellcheck disable=SC2034  # hand_in reads it
    name=$id; hand_in "$patience" & taking=$!
    while echo "$id" || exit; kill -0 "$taking" 2>/dev/null; do sleep 0.1; done
    wait "$taking" || {
        echo "error: its secrets were not taken ($?); its console: $(docker logs --tail 1 "$id" 2>&1)" >&2; exit 1; }
    echo "$id" || exit
}
[ -e "$mark" ] || { echo "removed while it was starting" >&2; exit 1; }
