#!/bin/sh
# status PATIENCE COLUMNS: every run's containers with their last steps, verdicts and last lines, and the GPUs. nvidia-smi may
# take a second: docker answers meanwhile, into the pipe.
patience=$1 columns=$2
. ./gpus_function.sh
. ./claims_function.sh
. ./each_container.sh
steps() (
    first=yes
    ranks=$(enter "$run" && files ranks); enter "$run/ranks" || exit
    printf '%s\n' "$ranks" | while read -r path size _; do
        case $path in ranks/rank-*.jsonl)
            piece "${path#*/}" $((size > 8192 ? size - 8192 : 0)) 8192 | tail -n 10; echo
            # A start that does not know at which step it begins may be anywhere in the file. One rank tells it for the host.
            [ -z "$first" ] || piece "${path#*/}" 0 "$size" | grep -a '"kind": "continues"' | grep -a '"known": false' | tail -n 1
            first= ;;
        esac
    done | grep -a -e '"kind": "step"' -e '"kind": "continues"'
    piece rank-0.jsonl 0 16384 | head -n 20 | grep -a '"kind": "plan"'
)
node() {
    printf '%s\n' "node $run $name $cells"
    if [ -n "$user" ]; then printf '%s\n' "foreign $run $user"
    else steps | sed "s/^/event $run /"; verdicts; fi
    docker logs --timestamps --tail 5 "$name" 2>&1 | tail -c 4000 | sed "s/^/line $run /"; echo
}
runs() {
    all=$(list) || { echo "engine-error $(printf '%s' "$all" | tail -n 1)"; return; }
    printf '%s\n' "$all" | containers node
}
echo "time $(date +%s)"
runs | { gpus; claims; cat; }
