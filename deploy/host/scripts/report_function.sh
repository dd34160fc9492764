#!/bin/sh
# report PATH...: what has changed of these files since the last call, in the lines that follow.sh describes. The current
# folder is the run's. Sets `more` if there is more than one call gives.
# shellcheck disable=SC2034,SC2154  # the script that includes this sets $mark, $most and $run, and reads $more
# What was reported of each path: `|PATH=VALUE|`.
known="|"
keep() {
    case $known in *"|$1="*) rest=${known#*"|$1="}; known="${known%%"|$1="*}|${rest#*"|"}" ;; esac
    known="$known$1=$2|"
}
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
report() {
    documents=$(files "$@")
    while read -r path size change; do
        case $known in *"|$path="*) value=${known#*"|$path="}; value=${value%%"|"*} ;; *) value= ;; esac
        case $path in
        nodes/*.json | config.json | environment.json | outcome/*.json) tell_document "$path" "$size" "$change" ;;
        ranks/rank-*.jsonl | telemetry/*.jsonl | scalars/*.jsonl | metrics*.jsonl | logs/rank-*.log | job.out)
            tell_growth "$path" "$size" ;;
        esac
    done <<END
$documents
END
}
