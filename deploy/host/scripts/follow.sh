#!/bin/sh
# follow CONTAINER FOLDER MARK SINCE MOST EVERY [SIZE PATH]...: reports every change in a node's container and run folder,
# until the node ends. `SIZE PATH` is one word: the reader has that many bytes of the file already.
#
# It writes one line for a change and a dot for each round: a write that fails shows that nobody reads any more. Each line
# begins with MARK, a word that the run cannot know; every other line is the node's console, with times in front. The lines:
# `state JSON`, or a word if the container is gone or the engine does not answer; `doc PATH BASE64 .`;
# `add PATH OFFSET BASE64 .`; `big PATH SIZE .`. A line without the dot at its end was cut. A growing file is reported in
# pieces of at most MOST bytes; a document whole, or only its size if it is larger. The end is reported last, after
# everything before it. `docker logs` must be called again when the container starts again.
name=$1 run=${2##*/} mark=$3 since=$4 most=$5 every=$6; shift 6
. ./reading.sh
. ./container_line.sh
# What was reported of each path: `|PATH=VALUE|`.
known="|"
enter "$run" || { echo "$mark state gone"; exit 0; }
keep() {
    case $known in *"|$1="*) rest=${known#*"|$1="}; known="${known%%"|$1="*}|${rest#*"|"}" ;; esac
    known="$known$1=$2|"
}
for size; do keep "${size#* }" "${size%% *}"; done
listen() { docker logs --follow --timestamps ${1:+--since "$1"} "$name" >&2 2>&1 & console=$!; }
listen "$since"; life= away=
trap 'kill $console 2>/dev/null' EXIT; trap 'exit 0' HUP INT TERM PIPE
tell_document() {
    now="$2:$3"; [ "$2" -le "$most" ] || now=big
    [ "$value" != "$now" ] && [ "$2" -gt 0 ] || return 0
    keep "$1" "$now"
    [ "$now" != big ] || { echo "$mark big $1 $2 ." || exit; return; }
    echo "$mark doc $1 $(read_at "$run" "$1" 0 "$most" | base64 | tr -d '\n') ." || exit
}
tell_growth() {
    at=${value:-0}; until=$2
    [ $((until - at)) -le $((32 * most)) ] || { until=$((at + 32 * most)); more=1; }
    while [ "$at" -lt "$until" ]; do
        size=$((until - at)); [ "$size" -le "$most" ] || size=$most
        now=$(read_at "$run" "$1" "$at" "$size" | base64 | tr -d '\n')
        # shellcheck disable=SC2017  # base64 consists of groups of four
        [ "${#now}" -eq $(((size + 2) / 3 * 4)) ] || { more=; return 0; }
        echo "$mark add $1 $at $now ." || exit
        at=$((at + size)); keep "$1" "$at"
    done
}
while echo "$mark ."; do
    over= more=
    state=$(docker inspect --format "$container_line" "$name" 2>&1) ||
        case $state in *[Nn]'o such'*) state=gone ;; *) state=away ;; esac
    case $state in
    away) away=1 ;;
    *) [ -z "$away" ] || exit 0 ;; # the console ended with its engine: the reader connects again and names what it has
    esac
    case $state in
    gone | *'"Status":"exited"'*) over=1; wait $console ;;
    *'"Status":"running"'*)
        started=${state##*'"StartedAt":"'}; started=${started%%'"'*}
        [ -z "$life" ] || [ "$started" = "$life" ] || { kill $console 2>/dev/null; listen "$started"; }
        life=$started ;;
    esac
    documents=$(files nodes config.json environment.json ranks metrics.jsonl telemetry scalars outcome)
    while read -r path size change; do
        case $known in *"|$path="*) value=${known#*"|$path="}; value=${value%%"|"*} ;; *) value= ;; esac
        case $path in
        nodes/*.json | config.json | environment.json | outcome/*.json) tell_document "$path" "$size" "$change" ;;
        ranks/rank-*.jsonl | telemetry/*.jsonl | scalars/*.jsonl | metrics.jsonl) tell_growth "$path" "$size" ;;
        esac
    done <<END
$documents
END
    [ -z "$more" ] || continue
    [ "$state" = "${reported:-}" ] || { reported=$state; printf '%s\n' "$mark state $state" || exit; }
    [ -z "$over" ] || exit 0
    sleep "$every"
done
