#!/bin/sh
# containers DO: calls DO for each container of a run, with $run, $name, $cells and $user. $user is empty if the run is ours.
# verdicts: a line `verdict RUN JSON` for each verdict that $run has. host/status.py reads the lines.
. ./reading.sh
home=${HOME%/}/.muster/runs
# A tab separates the JSON cells: JSON contains none.
tab=$(printf '\t')
node_line="{{.Names}}$tab{{json (.Label \"muster.run\")}}$tab{{json (.Label \"muster.user\")}}$tab{{json .Mounts}}$tab"
node_line=$node_line'[{{json .State}},{{json .Status}},{{json .CreatedAt}},{{json (.Label "muster.node")}},'
node_line=$node_line'{{json (.Label "muster.place")}},{{json (.Label "muster.command")}},{{json (.Label "muster.gpus")}}]'
list() { docker ps --all --no-trunc --filter label=muster.run --format "$node_line" 2>&1; }
# shellcheck disable=SC2034  # DO reads them
containers() {
    while IFS=$tab read -r name run user mounts cells; do
        run=${run#\"}; run=${run%\"}; mounts=${mounts#\"}
        plain "$run" || continue
        case ",${mounts%\"}," in *",$home/$run,"*) user= ;; esac
        "$1" </dev/null
    done
}
verdicts() {
    (enter "$run" && files outcome) | while read -r path _; do
        case $path in *.json)
            printf 'verdict %s %s\n' "$run" "$(read_at "$run" "$path" 0 65536 | tr '\n\000' '  ')" ;;
        esac
    done
}
