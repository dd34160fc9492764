#!/bin/sh
# status PATIENCE COLUMNS RUN...: prints the last steps and the verdicts of these runs, and the GPUs. nvidia-smi may take a
# second: meanwhile the files are read into the pipe.
patience=$1 columns=$2; shift 2
. ./gpus_function.sh
. ./claims_function.sh
. ./reading.sh
. ./verdicts_function.sh
steps() (
    first=yes
    ranks=$(enter "$run" && files ranks); enter "$run/ranks" || exit
    printf '%s\n' "$ranks" | while read -r path size _; do
        case $path in ranks/rank-*.jsonl)
            piece "${path#*/}" $((size > 8192 ? size - 8192 : 0)) 8192 | tail -n 10; echo
            # A start that does not know its first step may be recorded anywhere in the file. One rank's file is enough for the host.
            [ -z "$first" ] || piece "${path#*/}" 0 "$size" | grep -a '"kind": "continues"' | grep -a '"known": false' | tail -n 1
            first= ;;
        esac
    done | grep -a -e '"kind": "step"' -e '"kind": "continues"'
    piece rank-0.jsonl 0 16384 | head -n 20 | grep -a '"kind": "plan"'
)
echo "time $(date +%s)"
for run; do plain "$run" && { steps | sed "s/^/event $run /"; verdicts; }; done | { gpus; claims; cat; }
