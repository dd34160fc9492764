#!/bin/sh
# last-words FOLDER MOST TAIL: prints one JSON document on each line: the verdicts of the node and its ranks, and each rank's last
# step, checkpoint, begin, end and count of files. MOST: the largest size of a document; TAIL: how many bytes at the end of a
# rank's events are searched.
run=${1##*/} most=$2 tail=$3
. ./reading.sh
enter "$run" || exit 0
documents=$(files outcome ranks)
while read -r path size _; do
    case $path in
    outcome/*.json) read_at "$run" "$path" 0 "$most"; echo ;;
    ranks/rank-*.jsonl)
        for kind in step checkpoint began ended kept; do
            read_at "$run" "$path" $((size > tail ? size - tail : 0)) "$tail" |
                grep -aF "\"kind\": \"$kind\"" | tail -n 1 | cut -b "1-$most"
        done ;;
    esac
done <<END
$documents
END
