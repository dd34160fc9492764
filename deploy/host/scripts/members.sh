#!/bin/sh
# members: each run's containers, with place, number of ranks and whether they run a script; and the logs of the ranks.
. ./each_container.sh
node() {
    [ -z "$user" ] || return
    docker inspect --format '{{.State.Status}} {{index .Config.Labels "muster.place"}}
{{range .Config.Env}}{{println .}}{{end}}' "$name" | {
        read -r state place; variables=$(cat); what=trainer
        ranks=$(echo "$variables" | sed -n 's/^PET_NPROC_PER_NODE=//p' | tail -n 1)
        case $variables in *MUSTER_SENT=* | *MUSTER_SAVE_CHANGES=*) what=script ;; esac
        echo "member $run $name $state ${place:-0} ${ranks:-1} $what"
    }
}
list | containers node
[ -n "$runs" ] && cd -- "$runs" || exit 0
for run in *; do
    ! plain "$run" || (enter "$run" && files logs) | sed -nE "s,^(logs/rank-[0-9]+\.log) .*,rank-log $run/\1,p"
done
