"""What a host is asked about its runs, its GPUs and its logs: argument lists, quoted by the door to SSH.

Each is one round trip, needs a POSIX shell and the usual tools, and changes nothing. host_status.py, gpu_facts.py and
host_logs.py read the answers: lines of a word, a blank, a value.
"""

from __future__ import annotations

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
NODE_LINE = 'node {{.Label "muster.run"}} {{.Names}} [' + ",".join("{{json " + cell + "}}" for cell in _CELLS) + "]"
# nvidia-smi may take a second: docker is asked meanwhile, its answer waits in the pipe.
_STATUS = f"""
{_GPUS}
runs() {{
    if ! all=$(docker ps --all --no-trunc --filter label=muster.run --format '{NODE_LINE}' 2>&1); then
        echo "engine-said $(printf '%s' "$all" | tail -n 1)"
        return
    fi
    [ -n "$all" ] || return
    printf '%s\\n' "$all" | while read -r word run name cells; do
        printf '%s\\n' "$word $run $name $cells"
        cd "$HOME/.muster/runs/$run" 2>/dev/null && {{
            tail -q -n 10 ranks/rank-*.jsonl 2>/dev/null | grep '"kind": "step"' | sed "s/^/event $run /"
            head -n 20 ranks/rank-0.jsonl 2>/dev/null | grep '"kind": "plan"' | sed "s/^/event $run /"
            for verdict in outcome/*.json; do [ ! -f "$verdict" ] || echo "verdict $run $(cat "$verdict")"; done
        }}
        docker logs --timestamps --tail 5 "$name" 2>&1 | tail -c 4000 | sed "s/^/said $run /"; echo
    done
}}
echo "time $(date +%s)"
runs | {{ gpus; cat; }}
"""
_RUNS = f"""
docker ps --all --no-trunc --filter label=muster.run --format '{NODE_LINE}' 2>/dev/null
cd "$HOME/.muster/runs" 2>/dev/null || exit 0
for run in */; do
    run=${{run%/}}
    [ -d "$run/ranks" ] || continue
    saved=$(ls -d "$run"/checkpoints/step-* 2>/dev/null | tail -n 1)
    echo "folder $run $(stat -c %Y "$run") $(du -sk "$run" 2>/dev/null | cut -f 1) ${{saved##*step-}}"
    for verdict in "$run"/outcome/*.json; do [ ! -f "$verdict" ] || echo "verdict $run $(cat "$verdict")"; done
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
_MEMBERS = """
docker ps --all --no-trunc --filter label=muster.run \\
    --format '{{.Label "muster.run"}} {{.Names}} {{.State}} {{.Label "muster.place"}}' |
while read -r run name state place; do
    ranks=$(docker inspect --format '{{range .Config.Env}}{{println .}}{{end}}' "$name" |
        sed -n 's/^PET_NPROC_PER_NODE=//p')
    echo "member $run $name $state ${place:-0} ${ranks:-1}"
done
cd "$HOME/.muster/runs" 2>/dev/null || exit 0
for log in */logs/rank-*.log; do [ ! -f "$log" ] || echo "rank-log $log"; done
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
_RANK_LOG = """
cd && exec <"$1" || exit
while [ -n "$2" ] && [ "$(docker inspect --format '{{.State.Running}}' "$2" 2>/dev/null)" = true ]; do
    cat && echo "$3" >&2 && sleep 1 || exit
done
exec cat
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


def rank_log(run: str, rank: int, container: str, mark: str) -> tuple[str, ...]:
    """A rank's own log; with a container up to that one's end, the mark now and then."""
    return ("sh", "-c", _RANK_LOG, "rank-log", f".muster/runs/{run}/logs/rank-{rank}.log", container, mark)
