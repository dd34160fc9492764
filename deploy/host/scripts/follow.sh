#!/bin/sh
# follow CONTAINER FOLDER MARK SINCE MOST EVERY: reports every change in a node's container and run folder, until the node ends.
# Its input has lines `SIZE DIGITS PATH`: the reader already has that many bytes of a file with this name. The file may
# come from another host, which had the rank before: it is this host's file only if the digits in its first 24 bytes are
# the same.
#
# It writes one line for each change, and one with only a dot for each round: a write that fails shows that the reader
# is gone. Each of these lines begins with MARK, a word that the run cannot know; every other line is the node's
# console, with times in front. After MARK comes one of:
#   `state JSON`, or `state gone` if the container is gone, `state away` if the engine does not answer; the end comes
#     last of all
#   `died CODE` before the state of a node that the engine has started again, if the engine knows the exit code
#   `disk full` if a full disk keeps the node from writing, `disk closed` if the folder's permissions do, `disk room`
#     once neither does
#   `doc PATH BASE64 .`, a whole document; `add PATH OFFSET BASE64 .`, at most MOST bytes that a growing file got
#   `big PATH SIZE .`, for a document of more than MOST bytes
# A line `doc`, `add` or `big` without the dot at its end was cut off. `docker logs` must be called again when the
# container starts again.
name=$1 run=${2##*/} mark=$3 since=$4 most=$5 every=$6
. ./reading.sh
. ./report_function.sh
. ./container_line.sh
# If a folder's permissions were taken away, the folder still exists.
enter "$run" || {
    [ ! -d "$runs/$run" ] || [ -x "$runs/$run" ] || { echo "$mark disk closed"; sleep "$every"; exit 0; }
    echo "$mark state gone"; exit 0
}
begins() { digits=$(read_at "$run" "$1" 0 24 | tr -cd 0-9); echo "${digits:--}"; }
while read -r size digits path; do
    [ ! -f "./$path" ] || [ "$digits" != "$(begins "$path" </dev/null)" ] || keep "$path" "$size"
done
listen() { docker logs --follow --timestamps ${1:+--since "$1"} "$name" >&2 2>&1 & console=$!; }
# An engine restarts a node within a fifth of a second, and the state then no longer has the exit code of the life before.
died() {
    code=$($limit docker events --since "$life" --until "$started" --filter "container=$name" --filter event=die \
        --format '{{.Actor.Attributes.exitCode}}' 2>/dev/null | tail -n 1)
    [ -z "$code" ] || printf '%s\n' "$mark died $code" || exit
}
disk() {
    df -Pk . 2>/dev/null | { read -r _; read -r _ size _ free _; [ "${size:-0}" = 0 ] || [ "${free:-1024}" -ge 1024 ] && echo room || echo full; }
}
# A hanging engine must not keep the files from being read. Once it is known to hang, it gets less time, so that the reader hears
# from the host every few seconds and does not take it for silent.
limit=$(command -v timeout) && limit="$limit 8"
listen "$since"; life= away= round=0 disk= room=
trap 'kill $console 2>/dev/null' EXIT; trap 'exit 0' HUP INT TERM PIPE
while echo "$mark ."; do
    over= more=
    state=$($limit docker inspect --format "$container_line" "$name" 2>&1) ||
        case $state in *[Nn]'o such'*) state=gone ;; *) state=away ;; esac
    # Other output of the client on standard error, such as the loader's messages, is not part of the answer.
    case $state in *'{"Id":'*) state='{"Id":'${state#*'{"Id":'}; state=${state%%"$newline"*} ;; esac
    case $state in
    away) away=1 limit=${limit:+"${limit% *} 2"} ;;
    *) [ -z "$away" ] || exit 0 ;; # the console ended with its engine: the reader connects again and names what it has
    esac
    case $state in
    gone | *'"Status":"exited"'*) over=1; wait $console ;;
    *'"Status":"running"'*)
        started=${state##*'"StartedAt":"'}; started=${started%%'"'*}
        [ -z "$life" ] || [ "$started" = "$life" ] || { kill $console 2>/dev/null; died; listen "$started"; }
        life=$started ;;
    esac
    round=$((round % 8 + 1))
    # A node ends soon after its folder's permissions are taken away, so they are checked in each round.
    if ! { [ -w . ] && [ -x . ]; }; then room=closed; elif [ "$round" = 1 ] || [ "$room" = closed ]; then room=$(disk); fi
    [ "$room" = "$disk" ] || { disk=$room; printf '%s\n' "$mark disk $disk" || exit; }
    report nodes config.json environment.json ranks metrics*.jsonl telemetry scalars outcome
    [ -z "$more" ] || continue
    [ "$state" = "${reported:-}" ] || { reported=$state; printf '%s\n' "$mark state $state" || exit; }
    [ -z "$over" ] || exit 0
    sleep "$every"
done
