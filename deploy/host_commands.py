"""What is asked of a host and done there, as argument lists: built here, quoted by the door to SSH.

They need a POSIX shell and the usual tools; each is one round trip. What host_facts.py reads is written here: a word,
a blank, a value.
"""

from __future__ import annotations

from collections.abc import Sequence

_STATE = '{"Status":{{json .State.Status}},"ExitCode":{{json .State.ExitCode}},"StartedAt":{{json .State.StartedAt}}}'
CONTAINER_LINE = '{"name":{{json .Name}},"labels":{{json .Config.Labels}},"state":' + _STATE + "}"
# One that is removed between the two commands is no fault, an engine that goes silent is.
_CONTAINERS = f"""
containers=$(docker ps --all --quiet --filter "label=$label") || exit
[ -z "$containers" ] || docker inspect --format 'container {CONTAINER_LINE}' $containers 2>/dev/null ||
    docker ps --quiet >/dev/null
"""
# An engine that stands still would hold everybody.
ENGINE_PATIENCE_S, SILENT = 15, "no answer"
_LOOK = f"""
echo "time $(date +%s.%N)"; echo "home $HOME"; echo "ids $(id -u) $(id -g)"; echo "ssh $SSH_CONNECTION"
echo "arch $(uname -m)"; echo "cores $(nproc 2>/dev/null)"
awk '$1 == "MemTotal:" {{print "memory", $2}}' /proc/meminfo
[ ! -d /dev/infiniband ] || echo rdma
[ -w "$HOME" ] || echo home-readonly
for folder in "$HOME/.muster/runs" "$HOME/.muster" "$HOME"; do
    [ ! -d "$folder" ] || {{ echo "room $(df -Pk "$folder" | awk 'NR == 2 {{print $4}}')"; break; }}
done
limit=$(command -v timeout) && limit="$limit {ENGINE_PATIENCE_S}"
[ ! -e /proc/driver/nvidia/version ] ||
    {{ dmesg || $limit journalctl --quiet --dmesg --boot --no-pager; }} 2>/dev/null |
    grep -E 'NVRM: (Xid|loading)' | tail -n 30 | sed 's/^/kernel /'
nvidia-smi --query-gpu=index,name,memory.total --format=csv,noheader 2>/dev/null | sed 's/^/gpu /'
printf '%s\\n' "addresses $(ip -j addr 2>/dev/null | tr -d '\\n')"
sed '1d; s/^/socket /' /proc/net/tcp /proc/net/tcp6 2>/dev/null
command -v docker >/dev/null || {{ echo "engine-said docker: not found"; exit 0; }}
engine=$($limit docker version --format '{{{{json .}}}}' 2>&1); code=$?
[ -n "$engine" ] || [ "$code" -ne 124 ] || engine="{SILENT} within {ENGINE_PATIENCE_S} s"
[ "$code" -eq 0 ] || {{ echo "engine-said $(echo "$engine" | tail -n 1)"; exit 0; }}
printf '%s\\n' "engine $(printf '%s\\n' "$engine" | tail -n 1)"
sed -n 's/^Max open files *[^ ]* *//p' "/proc/$(pgrep -x dockerd | head -n 1)/limits" 2>/dev/null | sed 's/^/files /'
ls "$HOME/.muster/runs" 2>/dev/null | sed 's/^/run /'
echo "free $(df -Pk "$(docker info --format '{{{{.DockerRootDir}}}}')" 2>/dev/null | awk 'NR == 2 {{print $4}}')"
label=muster.run
{_CONTAINERS}
"""
# Nobody needs to listen: a host that refuses can be reached, and one whose firewall drops packets says nothing.
_UNREACHED = """
port=$1; shift
command -v bash >/dev/null && command -v timeout >/dev/null || exit 0
for peer; do (
    said=$(LC_ALL=C timeout 3 bash -c ': </dev/tcp/$0/$1' "$peer" "$port" 2>&1); code=$?
    case $code,$said in
    0,*|*refused*) ;;
    124,*) echo "$peer packets are dropped (3 s)" ;;
    *) echo "$peer $(echo "$said" | sed -n '$s/.*: //p')" ;;
    esac
) & done
wait
"""
# A folder that only root may look into is none that is missing.
_MISSING = """
for path; do
    [ -e "$path" ] || case $(LC_ALL=C ls -d -- "$path" 2>&1) in *'No such file'*) printf '%s\\n' "$path" ;; esac
done
"""
# The variables come over standard input into a file that only its owner reads, and that is gone when this ends. Their
# length is checked: a connection that is cut looks like the end of the input. A start may go on after a `remove`, with
# nobody left who waits for it: that one takes the file away first, and a start that finds it gone takes itself back.
_START = """
size=$1 folder=$2 owner=$3 file=$2.env; shift 3
umask 077; new=; [ -d "$folder" ] || new=$folder
mkdir -p "$folder" || exit
end() { code=$?; rm -f "$file"; [ "$code" -eq 0 ] || [ -z "$new" ] || rm -rf "$new"; }
trap end EXIT; trap 'exit 1' HUP INT TERM PIPE
cat >"$file" || exit
[ "$(wc -c <"$file")" -eq "$size" ] || { echo "not all of the environment arrived" >&2; exit 1; }
for part in nodes outcome ranks logs; do mkdir -p "$folder/$part"; done
rm -f "$folder"/nodes/*.json "$folder"/outcome/*.json
[ -z "$owner" ] || chown -R "$owner" "$folder" || exit
"$@" >/dev/null || exit
[ ! -e "$file" ] || exit 0
docker rm --force --volumes "muster-${folder##*/}" >/dev/null; echo "removed while it was starting" >&2; exit 1
"""
# One line a change, a dot a look: a write that fails is how this learns that nobody listens any more. Each begins with
# a word that the run cannot know; all else is the node's console, with times in front. Lines: `state JSON`, or a word
# for a container that is gone or an engine that does not answer; `doc PATH BASE64`, `add PATH OFFSET BASE64`. The end
# is told last, when all that came before it has been. The console of a container's next life has to be asked for.
_FOLLOW = f"""
name=$1 folder=$2 mark=$3 since=$4; shift 4
cd "$folder" 2>/dev/null || {{ echo "$mark state gone"; exit 0; }}
for known; do key=$(echo "${{known#* }}" | tr -c 'A-Za-z0-9\\n' _); eval "size_$key=${{known%% *}}"; done
listen() {{ docker logs --follow --timestamps ${{1:+--since "$1"}} "$name" >&2 2>&1 & console=$!; }}
listen "$since"; life= away=
trap 'kill $console 2>/dev/null' EXIT; trap 'exit 0' HUP INT TERM PIPE
while echo "$mark ."; do
    over=
    state=$(docker inspect --format '{CONTAINER_LINE}' "$name" 2>&1) ||
        case $state in *[Nn]'o such'*) state=gone ;; *) state=away ;; esac
    case $state in
    away) away=1 ;;
    *) [ -z "$away" ] || exit 0 ;; # the console ended with its engine: whoever asks again knows what it has heard
    esac
    case $state in
    gone | *'"Status":"exited"'*) over=1; wait $console ;;
    *'"Status":"running"'*)
        started=${{state##*'"StartedAt":"'}}; started=${{started%%'"'*}}
        [ -z "$life" ] || [ "$started" = "$life" ] || {{ kill $console 2>/dev/null; listen "$started"; }}
        life=$started ;;
    esac
    for path in nodes/*.json config.json environment.json ranks/rank-*.jsonl metrics.jsonl outcome/*.json; do
        [ -f "$path" ] || continue
        key=$(echo "$path" | tr -c 'A-Za-z0-9\\n' _)
        case $path in
        *.json)
            now=$(base64 <"$path" | tr -d '\\n'); eval "before=\\${{doc_$key:-}}"
            [ "$now" = "$before" ] || {{ eval "doc_$key=\\$now"; echo "$mark doc $path $now" || exit; }} ;;
        *)
            size=$(($(wc -c <"$path"))); eval "before=\\${{size_$key:-0}}"
            [ "$size" -le "$before" ] || {{
                now=$(tail -c +$((before + 1)) "$path" | head -c $((size - before)) | base64 | tr -d '\\n')
                echo "$mark add $path $before $now" || exit; eval "size_$key=$size"; }} ;;
        esac
    done
    [ "$state" = "${{told:-}}" ] || {{ told=$state; printf '%s\\n' "$mark state $state" || exit; }}
    [ -z "$over" ] || exit 0
    sleep "$MUSTER_EVERY"
done
"""
# Where all runs are meant, the second word is `*`: what any start left that was cut.
_REMOVE = """
rm -f "$HOME/.muster/runs/"$2.env
containers=$(docker ps --all --quiet --filter "label=$1") || exit
[ -z "$containers" ] || docker rm --force --volumes $containers >/dev/null || exit
echo "$containers" | grep -c . || :
"""
# `time run step` of each checkpoint that is whole.
_CHECKPOINTS = """
cd "$HOME/.muster/runs" 2>/dev/null || exit 0
for path in */checkpoints/step-*/manifest.json; do
    [ -f "$path" ] || continue
    step=${path%/manifest.json}; echo "$(date -r "$path" +%s) ${path%%/*} ${step##*/}"
done
"""
_LAST_WORDS = """
cd "$1" 2>/dev/null || exit 0
for path in outcome/*.json; do [ ! -f "$path" ] || { cat "$path"; echo; }; done
for path in ranks/rank-*.jsonl; do
    for kind in '"kind": "step"' '"kind": "checkpoint"'; do grep -sF "$kind" "$path" | tail -n 1; done
done
"""
_SIGNAL = """
containers=$(docker ps --quiet --filter "label=muster.run=$2")
[ -z "$containers" ] || docker kill --signal "$1" $containers >/dev/null 2>&1 || :
"""


def look() -> tuple[str, ...]:
    """All that host_facts.parse reads. Changes nothing."""
    return ("sh", "-c", _LOOK)


def routes(peers: Sequence[str]) -> tuple[str, ...]:
    """A line of `ip -j route get` for each peer, in their order; empty where there is no way."""
    return ("sh", "-c", 'for peer; do echo $(ip -j route get "$peer" 2>/dev/null); done', "routes", *peers)


def unreached(peers: Sequence[str], port: int) -> tuple[str, ...]:
    """A line `address why` for each peer whose port does not answer: a refusal is an answer. Nothing without bash."""
    return ("sh", "-c", _UNREACHED, "unreached", str(port), *peers)


def missing(paths: Sequence[str]) -> tuple[str, ...]:
    """A line for each of the paths that is not there."""
    return ("sh", "-c", _MISSING, "missing", *paths)


def start(size: int, folder: str, owner: str, command: Sequence[str]) -> tuple[str, ...]:
    """Make the run folder, take `size` bytes of variables from standard input, and run `command`."""
    return ("sh", "-c", _START, "start", str(size), folder, owner, *command)


def environment_file(folder: str) -> str:
    """Where `start` keeps the variables while it runs."""
    return f"{folder}.env"


def follow(name: str, folder: str, mark: str, since: str, sizes: dict[str, int], every_s: float) -> tuple[str, ...]:
    """Tell what changes in a node's container and run folder, to its end.

    `since`: the console from this time on, or all of it; `sizes`: bytes known of files that grow.
    """
    known = [f"{size} {path}" for path, size in sorted(sizes.items())]
    return ("env", f"MUSTER_EVERY={every_s:g}", "sh", "-c", _FOLLOW, "follow", name, folder, mark, since, *known)


def containers(run: str = "") -> tuple[str, ...]:
    """The containers of one run, or of all."""
    return ("sh", "-c", f"label=$1\n{_CONTAINERS}", "containers", _label(run))


def console(name: str, since: str = "") -> tuple[str, ...]:
    """What a node's console said, each line with its time in front."""
    since_words = ("--since", since) if since else ()
    return ("docker", "logs", "--timestamps", *since_words, name)


def signal(name: str, run: str) -> tuple[str, ...]:
    """Send a signal to what runs of a run."""
    return ("sh", "-c", _SIGNAL, "signal", name, run)


def checkpoints() -> tuple[str, ...]:
    """The checkpoints of all runs: a line each, `unix-time run step-00000100`."""
    return ("sh", "-c", _CHECKPOINTS)


def last_words(folder: str) -> tuple[str, ...]:
    """A JSON document a line: the verdicts that node and ranks left there, each rank's last step and checkpoint."""
    return ("sh", "-c", _LAST_WORDS, "last", folder)


def remove(run: str = "") -> tuple[str, ...]:
    """Remove the containers of a run, or of all; says how many there were."""
    return ("sh", "-c", _REMOVE, "remove", _label(run), run or "*")


def remove_folder(folder: str) -> tuple[str, ...]:
    """Remove a run folder and what a start that was cut left beside it."""
    return ("rm", "-rf", "--", folder, environment_file(folder))


def take_home(folder: str) -> tuple[str, ...]:
    """A run folder as a gzipped tar stream, in base64 lines."""
    script = 'cd "$1" && tar -czf - --exclude="./nodes/.*" . | base64'
    return ("sh", "-c", script, "take", folder)


def _label(run: str) -> str:
    return f"muster.run={run}" if run else "muster.run"
