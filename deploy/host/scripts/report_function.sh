#!/bin/sh
# report PATH...: prints what has changed in these files since the last call, in the lines that follow.sh describes. The current
# folder is the run's. Sets `more` if there is more than one call reports.
# shellcheck disable=SC2034,SC2154  # the script that includes this sets $mark, $most and $run, and reads $more
newline='
'
# What was reported of each path: lines `PATH VALUE`; the last line of a path counts. awk looks the paths up: a shell would take
# seconds for a few hundred paths, and minutes for a thousand.
known=
keep() { known="$known$1 $2$newline"; }
tell_document() {
    now="$2:$3"; [ "$2" -le "$most" ] || now=big
    [ "$2" -gt 0 ] || return 0
    keep "$1" "$now"
    [ "$now" != big ] || { echo "$mark big $1 $2 ." || exit; return; }
    echo "$mark doc $1 $(read_at "$run" "$1" 0 "$most" | base64 | tr -d '\n') ." || exit
}
tell_growth() {
    at=$3; until=$2
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
    known=$(printf %s "$known" | awk '{ last[$1] = $0 } END { for (path in last) print last[path] }')$newline
    changed=$({ printf '%s--\n' "$known"; files "$@"; } | awk -v most="$most" '
        $1 == "--" { listed = 1; next }
        !listed { last[$1] = substr($0, length($1) + 2); next }
        { value = last[$1]; change = substr($0, length($1) + length($2) + 3) }
        value == $2 || value == $2 ":" change || (value == "big" && $2 > most + 0) { next }
        { print $1, $2, (value ~ /^[0-9]+$/ ? value : 0), change }')
    while read -r path size at change; do
        case $path in
        nodes/*.json | config.json | environment.json | outcome/*.json) tell_document "$path" "$size" "$change" ;;
        ranks/rank-*.jsonl | telemetry/*.jsonl | scalars/*.jsonl | metrics*.jsonl | logs/rank-*.log | job.out)
            tell_growth "$path" "$size" "$at" ;;
        esac
    done <<END
$changed
END
}
