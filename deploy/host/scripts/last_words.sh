#!/bin/sh
# last FOLDER MOST TAIL: a JSON document a line: the verdicts that node and ranks left there, each rank's last step and
# checkpoint. MOST: bytes of a document; TAIL: so much of the end of a rank's events is searched.
run=${1##*/} most=$2 tail=$3
. ./reading.sh
enter "$run" || exit 0
found=$(files outcome ranks)
while read -r path size _; do
    case $path in
    outcome/*.json) read_at "$run" "$path" 0 "$most"; echo ;;
    ranks/rank-*.jsonl)
        for kind in '"kind": "step"' '"kind": "checkpoint"'; do
            read_at "$run" "$path" $((size > tail ? size - tail : 0)) "$tail" |
                grep -aF "$kind" | tail -n 1 | cut -b "1-$most"
        done ;;
    esac
done <<END
$found
END
