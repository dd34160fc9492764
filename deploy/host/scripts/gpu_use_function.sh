#!/bin/sh
# gpu_use: prints the GPUs, each process that computes on them with its user and container, each living container that was given
# some, and each deploy's claim. It needs $patience and $columns, as gpus_function.sh does.
. ./gpus_function.sh
. ./claims_function.sh
# shellcheck disable=SC2154  # the script that includes this sets $columns
gpu_use() {
    gpus
    case $code in '' | 124) ;; *) computing ;; esac
    claims
    command -v docker >/dev/null 2>&1 || return 0
    docker ps --no-trunc --format 'container {{.ID}} {{.Names}} {{.Label "muster.run"}}' 2>/dev/null
    given
}
computing() {
    ask --query-compute-apps=gpu_uuid,pid,used_memory,process_name
    case $code in 0 | 14) ;; *) echo "app-error $answer"; return ;; esac
    [ -n "$answer" ] || return
    printf '%s\n' "$answer" | sed 's/^/app /'
    printf '%s\n' "$answer" | cut -d, -f2 | sort -u | while read -r pid; do
        [ -d "/proc/$pid" ] || continue
        echo "user $pid $(stat -c '%U %u' "/proc/$pid" 2>/dev/null)"
        echo "cgroup $pid $(tr '\n' ' ' <"/proc/$pid/cgroup" 2>/dev/null)"
    done
}
# A container that was created but not started also counts: Muster's own are about to start.
given() {
    living=$(docker ps --all --quiet --filter status=created --filter status=running --filter status=restarting \
        --filter status=paused 2>/dev/null) || { echo "given-error the engine does not answer"; return; }
    label='(index .Config.Labels "muster.run")'
    # shellcheck disable=SC2086  # one word for each container
    [ -z "$living" ] || docker inspect --format "{{if or .HostConfig.DeviceRequests $label}}given [{{json .Name}},\
{{json .State.Status}},{{json $label}},{{json (index .Config.Labels \"muster.user\")}},\
{{json (index .Config.Labels \"muster.gpus\")}},{{json .HostConfig.DeviceRequests}},\
{{json (index .Config.Labels \"muster.waits\")}}]{{end}}" $living 2>/dev/null | grep .
    return 0
}
