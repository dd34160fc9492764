#!/bin/sh
# gpus PATIENCE COLUMNS: the GPUs, and each process that computes on them, with its user and container.
patience=$1 columns=$2
. ./gpus_function.sh
gpus
command -v nvidia-smi >/dev/null 2>&1 || exit 0
apps=$(ask --query-compute-apps=gpu_uuid,pid,used_memory,process_name) || { echo "app-error $apps"; exit 0; }
[ -n "$apps" ] || exit 0
printf '%s\n' "$apps" | sed 's/^/app /'
printf '%s\n' "$apps" | cut -d, -f2 | sort -u | while read -r pid; do
    [ -d "/proc/$pid" ] || continue
    echo "user $pid $(stat -c '%U %u' "/proc/$pid" 2>/dev/null)"
    echo "cgroup $pid $(tr '\n' ' ' <"/proc/$pid/cgroup" 2>/dev/null)"
done
docker ps --no-trunc --format 'container {{.ID}} {{.Names}} {{.Label "muster.run"}}' 2>/dev/null
