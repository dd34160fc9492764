"""What is asked of a host and done there, as argument lists: built here, quoted by the door to SSH.

They need a POSIX shell and the usual tools; each is one round trip. What host/facts.py reads is written here: a word,
a blank, a value.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

from .run_folder import FOLDER, OURS, READING

_STATE = '{"Status":{{json .State.Status}},"ExitCode":{{json .State.ExitCode}},"StartedAt":{{json .State.StartedAt}}}'
_FOLDER = FOLDER.format(how="{{json .Source}}")
CONTAINER_LINE = (
    '{"name":{{json .Name}},"labels":{{json .Config.Labels}},"folder":[' + _FOLDER + '],"state":' + _STATE + "}"
)
# One that is removed between the two commands is no fault, an engine that goes silent is.
_CONTAINERS = f"""
containers=$(docker ps --all --quiet --filter "label=$label") || exit
[ -z "$containers" ] || docker inspect --format 'container {CONTAINER_LINE}' $containers 2>/dev/null ||
    docker ps --quiet >/dev/null
"""
# An engine that stands still would hold everybody.
ENGINE_PATIENCE_S, SILENT = 15, "no answer"
_LOOK = f"""
echo "time $(date +%s.%N)"; echo "home $HOME"; echo "ids $(id -u) $(id -g)"; echo "user $(id -un)"
echo "ssh $SSH_CONNECTION"; echo "arch $(uname -m)"; echo "cores $(nproc 2>/dev/null)"
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
# Debian's and Ubuntu's packages call it python3 alone; where an image has both, `python` is the one that has torch.
PYTHON = (
    'for name in python python3; do command -v $name >/dev/null && exec $name "$@"; done; '
    "echo no python in this image >&2; exit 127"
)
# trainer/node/handover.py's exit codes, and what a node's console says.
TAKEN, NOBODY_WAITS = 0, 3
WAITS, HAS_SECRETS = "waits for its secrets", "has its secrets"
_TAKEN_WITHIN_S = 90
# What a user's variables are stays off command lines, which everybody on a host can read: they come over standard
# input, in base64, a line each for `docker run --env-file` and for the secrets. A line that a cut connection left
# without its end is no line. `echo` is part of every shell: its words are on no command line either.
_HAND_IN = f"""
hand_in() {{
    echo "$secrets" | base64 -d |
        docker exec --interactive "$name" sh -c '{PYTHON}' sh -P -m trainer.node.handover "$1"
}}
"""
# Secrets go into a container that runs, and nowhere else (trainer/node/handover.py). One that waits for them and
# cannot get them is taken away, also where nobody listens any more: then a word cannot be written. A start may go on
# after a `remove`, with nobody left who waits for it: that one takes the mark away first, and a start that finds it
# gone takes itself back. What it takes back is what has its own label, and a folder that it made: of two starts with
# one id, or in a home that hosts share, each has its own.
_START = f"""
folder=$1 owner=$2 start=$3 new=$4 mark=$1=$3.starting made=; shift 4
{_HAND_IN}
IFS= read -r variables && IFS= read -r secrets || {{ echo "not all of the variables arrived" >&2; exit 1; }}
umask 077
end() {{
    code=$?; rm -f -- "$mark"; [ "$code" -ne 0 ] || return
    docker ps --all --quiet --no-trunc --filter "label=muster.start=$start" |
        xargs -r docker rm --force --volumes >/dev/null
    [ -z "$made" ] || rm -rf -- "$made"
}}
trap end EXIT; trap 'exit 1' HUP INT TERM PIPE
mkdir -p -- "${{folder%/*}}" || exit
[ ! -L "$folder" ] || {{ echo "$folder is a link: a run's folder must be one itself" >&2; exit 1; }}
if mkdir -- "$folder" 2>/dev/null; then made=$folder
elif [ -n "$new" ]; then echo "$folder is there already: another start has that name" >&2; exit 1; fi
: >"$mark" || exit
[ -z "$made" ] || (cd -- "$folder" && mkdir nodes outcome ranks logs) || exit
[ -z "$owner" ] || chown -hR -- "$owner" "$folder" || exit
# The number that run_user.py chose is kept for later runs.
case ${{owner%%:*}} in
6???? | 2?????????) [ -e "$HOME/.muster/uid" ] || echo "${{owner%%:*}}" >"$HOME/.muster/uid" || exit ;;
esac
id=$(echo "$variables" | base64 -d | "$@") || exit
[ -z "$secrets" ] || {{
    name=$id; hand_in {_TAKEN_WITHIN_S} & taking=$!
    while echo "$id" || exit; kill -0 "$taking" 2>/dev/null; do sleep 0.1; done
    wait "$taking" || {{
        echo "error: its secrets were not taken ($?); its console: $(docker logs --tail 1 "$id" 2>&1)" >&2; exit 1; }}
    echo "$id" || exit
}}
[ -e "$mark" ] || {{ echo "removed while it was starting" >&2; exit 1; }}
"""
# What the start before left about its nodes. Its containers are gone, what they made of the folder is not.
_CLEAR = f"""
{READING}
for part in nodes outcome ranks logs; do
    enter "$1" || exit 0
    if [ -L "$part" ] || [ ! -d "$part" ]; then rm -f -- "$part"; mkdir -- "$part" || exit; fi
    case $part in nodes | outcome)
        enter "$1/$part" && find -P . -maxdepth 1 -name '*.json' ! -type d -exec rm -f -- {{}} + ||
            {{ echo "$1/$part cannot be cleared" >&2; exit 1; }} ;;
    esac
done
"""
_UNDO = """
rm -f -- "$2=$1.starting"
containers=$(docker ps --all --quiet --no-trunc --filter "label=muster.start=$1") || exit
[ -n "$containers" ] || exit 0
docker rm --force --volumes $containers >/dev/null || exit
[ -z "$3" ] || rm -rf -- "$2"
"""
_HAND_IN_AGAIN = f"""
name=$1; IFS= read -r secrets || exit
{_HAND_IN}
hand_in 0 && exit; code=$?
[ "$(docker inspect --format '{{{{.State.Status}}}}' "$name" 2>/dev/null)" = running ] || exit {NOBODY_WAITS}
exit "$code"
"""
# Standard input is the container's, but for its first line.
_WITH_VARIABLES = """
IFS= read -r variables || exit
exec 4<&0
echo "$variables" | base64 -d | "$@" 3<&0 <&4
"""
VARIABLES_FIRST, VARIABLES_ASIDE = "/dev/stdin", "/dev/fd/3"
# What grows is told in pieces of so many bytes, so that no line is longer than session_run.LONGEST_LINE; a document is
# told whole, or its size is, where it is larger.
PIECE = 256 << 10
# Of what ranks say of their steps no more than the end is searched.
_TAIL = 64 << 20
# One line a change, a dot a look: a write that fails is how this learns that nobody listens any more. Each begins with
# a word that the run cannot know; all else is the node's console, with times in front. Lines: `state JSON`, or a word
# for a container that is gone or an engine that does not answer; `doc PATH BASE64 .`, `add PATH OFFSET BASE64 .`,
# `big PATH SIZE .`: a line without the dot at its end was cut. The end is told last, when all that came before it has
# been. The console of a container's next life has to be asked for. `known`: what was told of each path, `|PATH=VALUE|`.
_FOLLOW = f"""
name=$1 run=${{2##*/}} mark=$3 since=$4 known="|"; shift 4
{READING}
enter "$run" || {{ echo "$mark state gone"; exit 0; }}
keep() {{
    case $known in *"|$1="*) rest=${{known#*"|$1="}}; known="${{known%%"|$1="*}}|${{rest#*"|"}}" ;; esac
    known="$known$1=$2|"
}}
for size; do keep "${{size#* }}" "${{size%% *}}"; done
listen() {{ docker logs --follow --timestamps ${{1:+--since "$1"}} "$name" >&2 2>&1 & console=$!; }}
listen "$since"; life= away=
trap 'kill $console 2>/dev/null' EXIT; trap 'exit 0' HUP INT TERM PIPE
tell_document() {{
    now="$2:$3"; [ "$2" -le {PIECE} ] || now=big
    [ "$value" != "$now" ] && [ "$2" -gt 0 ] || return 0
    keep "$1" "$now"
    [ "$now" != big ] || {{ echo "$mark big $1 $2 ." || exit; return; }}
    echo "$mark doc $1 $(read_at "$run" "$1" 0 {PIECE} | base64 | tr -d '\\n') ." || exit
}}
tell_growth() {{
    at=${{value:-0}}; until=$2
    [ $((until - at)) -le {32 * PIECE} ] || {{ until=$((at + {32 * PIECE})); more=1; }}
    while [ "$at" -lt "$until" ]; do
        size=$((until - at)); [ "$size" -le {PIECE} ] || size={PIECE}
        now=$(read_at "$run" "$1" "$at" "$size" | base64 | tr -d '\\n')
        [ "${{#now}}" -eq $(((size + 2) / 3 * 4)) ] || {{ more=; return 0; }}
        echo "$mark add $1 $at $now ." || exit
        at=$((at + size)); keep "$1" "$at"
    done
}}
while echo "$mark ."; do
    over= more=
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
    found=$(files nodes config.json environment.json ranks metrics.jsonl outcome)
    while read -r path size change; do
        case $known in *"|$path="*) value=${{known#*"|$path="}}; value=${{value%%"|"*}} ;; *) value= ;; esac
        case $path in
        nodes/*.json | config.json | environment.json | outcome/*.json) tell_document "$path" "$size" "$change" ;;
        ranks/rank-*.jsonl | metrics.jsonl) tell_growth "$path" "$size" ;;
        esac
    done <<END
$found
END
    [ -z "$more" ] || continue
    [ "$state" = "${{told:-}}" ] || {{ told=$state; printf '%s\\n' "$mark state $state" || exit; }}
    [ -z "$over" ] || exit 0
    sleep "$MUSTER_EVERY"
done
"""
# Ours only; those of other users are named. First goes what a start that was cut left, or one that still goes on has.
_REMOVE = f"""
{OURS}
if [ -n "$1" ]; then rm -f -- "$home/$1="*.starting; else rm -f -- "$home"/*.starting; fi
found=$(ours "$1") || exit
[ -z "$found" ] || docker rm --force --volumes $found >/dev/null || exit
printf 'removed %s\\n' "$(printf '%s' "$found" | grep -c .)"
docker ps --all --filter "label=muster.run${{1:+=$1}}" --filter label=muster.node \\
    --format 'left [{{{{json (.Label "muster.run")}}}},{{{{json (.Label "muster.user")}}}}]'
"""
# `time run step` of each checkpoint that is whole.
_CHECKPOINTS = f"""
{READING}
[ -n "$runs" ] && cd -- "$runs" || exit 0
for run in *; do
    plain "$run" && enter "$run/checkpoints" || continue
    find -P . -mindepth 2 -maxdepth 2 -path './step-*/manifest.json' -type f \\
        -exec stat -c '%Y %n' -- {{}} + 2>/dev/null |
        LC_ALL=C sed -nE "s,^([0-9]+) \\./(step-[0-9]+)/manifest\\.json$,\\1 $run \\2,p"
    cd -- "$runs" || exit
done
"""
_LAST_WORDS = f"""
run=${{1##*/}}
{READING}
enter "$run" || exit 0
found=$(files outcome ranks)
while read -r path size _; do
    case $path in
    outcome/*.json) read_at "$run" "$path" 0 {PIECE}; echo ;;
    ranks/rank-*.jsonl)
        for kind in '"kind": "step"' '"kind": "checkpoint"'; do
            read_at "$run" "$path" $((size > {_TAIL} ? size - {_TAIL} : 0)) {_TAIL} |
                grep -aF "$kind" | tail -n 1 | cut -b 1-{PIECE}
        done ;;
    esac
done <<END
$found
END
"""
_SIGNAL = f"""
{OURS}
containers=$(ours "$2")
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


def start(folder: str, owner: str, command: Sequence[str], label: str, new: bool = False) -> tuple[str, ...]:
    """Make the run folder, run `command`, which makes a container, and hand its secrets in.

    Standard input: two `line`s, the variables as VARIABLES_FIRST wants them, and the secrets (empty: there are none).
    `label`: what the container it makes has as `muster.start`, and no other one; `new`: the folder must not be there.
    """
    return ("sh", "-c", _START, "start", folder, owner, label, "new" * new, *command)


def clear(run: str) -> tuple[str, ...]:
    """Make a run's folder ready for its next start: what the last one said of its nodes goes."""
    return ("sh", "-c", _CLEAR, "clear", run)


def undo(label: str, folder: str, fresh: bool) -> tuple[str, ...]:
    """Take back what the start with that label made, and only that: its container, and a folder that is `fresh`."""
    return ("sh", "-c", _UNDO, "undo", label, folder, "fresh" * fresh)


def hand_in(container: str) -> tuple[str, ...]:
    """Hand the secrets, a `line` on standard input, to a node that waits for them; an empty line asks whether it does.

    Ends with TAKEN, with NOBODY_WAITS, or with another code where a node waits and has not taken them.
    """
    return ("sh", "-c", _HAND_IN_AGAIN, "hand-in", container)


def with_variables(command: Sequence[str]) -> tuple[str, ...]:
    """Run a command that reads variables from VARIABLES_ASIDE; they are the first `line` of its standard input."""
    return ("sh", "-c", _WITH_VARIABLES, "with-variables", *command)


def line(data: bytes) -> bytes:
    """`data` as a line of standard input."""
    return base64.b64encode(data) + b"\n"


def variable_lines(variables: Mapping[str, str]) -> bytes:
    """What `docker run --env-file` reads."""
    return "".join(f"{name}={value}\n" for name, value in sorted(variables.items())).encode()


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


def document(run: str, name: str) -> tuple[str, ...]:
    """A file of a run's folder, its first 256 KiB; nothing where it is no plain file."""
    return ("sh", "-c", f'{READING}\nread_at "$1" "$2" 0 {PIECE}', "document", run, name)


def last_words(folder: str) -> tuple[str, ...]:
    """A JSON document a line: the verdicts that node and ranks left there, each rank's last step and checkpoint."""
    return ("sh", "-c", _LAST_WORDS, "last", folder)


def remove(run: str = "") -> tuple[str, ...]:
    """Remove our containers of a run, or of all: `removed N`, then `left ["run", "user"]` for each of another user."""
    return ("sh", "-c", _REMOVE, "remove", run)


def take_home(folder: str) -> tuple[str, ...]:
    """A run folder as a tar stream. Not compressed: what is written here had to be sent."""
    script = 'cd -P -- "$1" && exec tar -cf - --exclude="./nodes/.*" .'
    return ("sh", "-c", script, "take", folder)


def size_of(folder: str) -> tuple[str, ...]:
    """`KILOBYTES PATH` of a run folder: the sizes of its files, or the disk space they take where du knows no more."""
    script = 'du -sk --apparent-size -- "$1" 2>/dev/null || du -sk -- "$1"'
    return ("sh", "-c", script, "size", folder)


def _label(run: str) -> str:
    return f"muster.run={run}" if run else "muster.run"
