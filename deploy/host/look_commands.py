"""What a host is asked about its runs, its GPUs and its logs: argument lists, quoted by the door to SSH.

Each is one round trip, needs a POSIX shell and the usual tools, and changes nothing. host/status.py, host/gpus.py and
host/logs.py read the answers: lines of a word, a blank, a value.
"""

from __future__ import annotations

from ..core.names import RunId
from .run_folder import READING

# A driver that hangs takes nvidia-smi along.
GPU_PATIENCE_S = 10
# The name goes last: it may hold commas.
GPU_COLUMNS = "index,uuid,memory.used,memory.total,utilization.gpu,name"
_GPUS = f"""
ask() {{ timeout {GPU_PATIENCE_S} nvidia-smi "$@" --format=csv,noheader,nounits 2>&1; }}
gpus() {{
    if ! command -v nvidia-smi >/dev/null 2>&1; then
        ! grep -qs 0x10de /sys/bus/pci/devices/*/vendor || echo "gpu-said an NVIDIA device is there, nvidia-smi is not"
        return
    fi
    said=$(ask --query-gpu={GPU_COLUMNS}); code=$?
    printf '%s\\n' "$said" | sed 's/^/gpu /'
    [ "$code" -eq 0 ] || echo "gpu-code $code"
}}
"""
_CELLS = (".State", ".Status", ".CreatedAt", *(f'(.Label "muster.{name}")' for name in ("node", "place", "command")))
# Tabs between JSON, which has none.
NODE_LINE = "\t".join(
    [
        "{{.Names}}",
        *("{{json " + cell + "}}" for cell in ('(.Label "muster.run")', '(.Label "muster.user")', ".Mounts")),
        "[" + ",".join("{{json " + cell + "}}" for cell in _CELLS) + "]",
    ]
)
# `containers DO`: does DO for each container of a run, with $run, $name, $cells, and $user: empty where it is ours.
_CONTAINERS = f"""
{READING}
home=${{HOME%/}}/.muster/runs
list() {{ docker ps --all --no-trunc --filter label=muster.run --format '{NODE_LINE}' 2>&1; }}
containers() {{
    while IFS=$(printf '\\t') read -r name run user mounts cells; do
        run=${{run#\\"}}; run=${{run%\\"}}; mounts=${{mounts#\\"}}
        plain "$run" || continue
        case ",${{mounts%\\"}}," in *",$home/$run,"*) user= ;; esac
        "$1" </dev/null
    done
}}
verdicts() {{
    (enter "$run" && files outcome) | while read -r path _; do
        case $path in *.json)
            printf 'verdict %s %s\\n' "$run" "$(read_at "$run" "$path" 0 65536 | tr '\\n\\000' '  ')" ;;
        esac
    done
}}
"""
# nvidia-smi may take a second: docker is asked meanwhile, its answer waits in the pipe.
_STATUS = f"""
{_GPUS}
{_CONTAINERS}
steps() (
    ranks=$(enter "$run" && files ranks); enter "$run/ranks" || exit
    printf '%s\\n' "$ranks" | while read -r path size _; do
        case $path in ranks/rank-*.jsonl)
            piece "${{path#*/}}" $((size > 8192 ? size - 8192 : 0)) 8192 | tail -n 10; echo ;;
        esac
    done | grep -a '"kind": "step"'
    piece rank-0.jsonl 0 16384 | head -n 20 | grep -a '"kind": "plan"'
)
node() {{
    printf '%s\\n' "node $run $name $cells"
    if [ -n "$user" ]; then printf '%s\\n' "foreign $run $user"
    else steps | sed "s/^/event $run /"; verdicts; fi
    docker logs --timestamps --tail 5 "$name" 2>&1 | tail -c 4000 | sed "s/^/said $run /"; echo
}}
runs() {{
    all=$(list) || {{ echo "engine-said $(printf '%s' "$all" | tail -n 1)"; return; }}
    printf '%s\\n' "$all" | containers node
}}
echo "time $(date +%s)"
runs | {{ gpus; cat; }}
"""
_RUNS = f"""
{_CONTAINERS}
node() {{ [ -n "$user" ] || printf '%s\\n' "node $run $name $cells"; }}
list | containers node
[ -n "$runs" ] && cd -- "$runs" || exit 0
limit=$(command -v timeout) && limit="$limit 10"
folder() (
    enter "$run" && [ -d ranks ] || exit
    saved=$(find -P checkpoints -maxdepth 1 -type d -name 'step-*' 2>/dev/null |
        LC_ALL=C grep -E '^checkpoints/step-[0-9]+$' | sort | tail -n 1)
    size=$($limit du -sk . 2>/dev/null | cut -f 1)
    echo "folder $run $(stat -c %Y .) ${{size:-0}} ${{saved##*step-}}"
    verdicts
)
for run in *; do
    ! plain "$run" || folder
done
"""
_HOLDERS = f"""
{_GPUS}
gpus
command -v nvidia-smi >/dev/null 2>&1 || exit 0
apps=$(ask --query-compute-apps=gpu_uuid,pid,used_memory,process_name) || {{ echo "app-said $apps"; exit 0; }}
[ -n "$apps" ] || exit 0
printf '%s\\n' "$apps" | sed 's/^/app /'
printf '%s\\n' "$apps" | cut -d, -f2 | sort -u | while read -r pid; do
    [ -d "/proc/$pid" ] || continue
    echo "user $pid $(stat -c '%U %u' "/proc/$pid" 2>/dev/null)"
    echo "cgroup $pid $(tr '\\n' ' ' <"/proc/$pid/cgroup" 2>/dev/null)"
done
docker ps --no-trunc --format 'container {{{{.ID}}}} {{{{.Names}}}} {{{{.Label "muster.run"}}}}' 2>/dev/null
"""
_MEMBERS = f"""
{_CONTAINERS}
node() {{
    [ -z "$user" ] || return
    docker inspect --format '{{{{.State.Status}}}} {{{{index .Config.Labels "muster.place"}}}}
{{{{range .Config.Env}}}}{{{{println .}}}}{{{{end}}}}' "$name" | {{
        read -r state place; ranks=$(sed -n 's/^PET_NPROC_PER_NODE=//p' | tail -n 1)
        echo "member $run $name $state ${{place:-0}} ${{ranks:-1}}"
    }}
}}
list | containers node
[ -n "$runs" ] && cd -- "$runs" || exit 0
for run in *; do
    ! plain "$run" || (enter "$run" && files logs) | sed -nE "s,^(logs/rank-[0-9]+\\.log) .*,rank-log $run/\\1,p"
done
"""
# One who listens no more is noticed by a mark that cannot be written: nothing must stay there. It goes the other way
# than the lines, or it would stand in the middle of one.
_CONSOLE = """
mark=$1; shift
docker logs "$@" 2>&1 & console=$!
trap 'kill $console 2>/dev/null' EXIT; trap 'exit 0' HUP INT TERM PIPE
while kill -0 $console 2>/dev/null && echo "$mark" >&2; do sleep 1; done
wait $console
"""
_RANK_LOG = f"""
run=$1 name=$2 container=$3 mark=$4 at=0
{READING}
grow() {{
    read -r _ size _ <<END
$(enter "$run" && files "logs/$name")
END
    [ -n "$size" ] || {{ echo "logs/$name is no plain file" >&2; return 1; }}
    [ "$size" -le "$at" ] || {{ read_at "$run" "logs/$name" "$at" $((size - at)) && at=$size; }}
}}
runs() {{ [ "$(docker inspect --format '{{{{.State.Running}}}}' "$container" 2>/dev/null)" = true ]; }}
while [ -n "$container" ] && runs; do
    grow && echo "$mark" >&2 && sleep 1 || exit
done
grow
"""


def status() -> tuple[str, ...]:
    """What host_status.parse reads: every run's container, last steps, verdicts and last lines, and the GPUs."""
    return ("sh", "-c", _STATUS)


def runs() -> tuple[str, ...]:
    """What host_status.parse_runs reads: every run's folder, and the containers that are left."""
    return ("sh", "-c", _RUNS)


def holders() -> tuple[str, ...]:
    """What gpu_facts.parse reads: the GPUs, and each process that computes on them with its user and container."""
    return ("sh", "-c", _HOLDERS)


def members() -> tuple[str, ...]:
    """What host_logs.parse reads: each run's container with its place and its ranks, and the ranks' own logs."""
    return ("sh", "-c", _MEMBERS)


def state(container: str) -> tuple[str, ...]:
    """Whether a container runs, and its exit code: `true 0`."""
    return ("docker", "inspect", "--format", "{{.State.Running}} {{.State.ExitCode}}", container)


def console(container: str, since: str, mark: str = "") -> tuple[str, ...]:
    """A container's console, each line with its time in front; with a mark up to its end, the mark now and then."""
    words = ("--timestamps", *(("--since", since) if since else ()), container)
    if not mark:
        return ("sh", "-c", 'exec docker logs "$@" 2>&1', "console", *words)
    return ("sh", "-c", _CONSOLE, "console", mark, "--follow", *words)


def rank_log(run: RunId, rank: int, container: str, mark: str) -> tuple[str, ...]:
    """A rank's own log; with a container up to that one's end, the mark now and then."""
    return ("sh", "-c", _RANK_LOG, "rank-log", run, f"rank-{rank}.log", container, mark)
