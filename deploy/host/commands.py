"""The commands that a host runs for us, as argument lists. door/ quotes them.

Each command is one round trip and needs a POSIX shell and the usual tools; its text lies in scripts/. Most answers are
lines of a word, a blank and a value, which facts.py, status.py, gpus.py and logs.py read.
"""

from __future__ import annotations

import base64
import io
import re
import secrets
import tarfile
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..core.names import NODE_PROGRAMS, TRAINER, RunId
from ..core.scripts import Argv, Scripts
from ..engine.client import TAKEN_WITHIN_S

# The command of a script in scripts/, whose first comment says what it gets and answers.
script = Scripts(__file__)
# A container sees its run's folder here. The folder's path on the host says whose run it is.
RUN_IN_CONTAINER = "/muster/run"
# An engine that hangs must not block the command: after this time we report SILENT instead of its answer.
_ENGINE_PATIENCE_S, SILENT = 15, "no answer"
# Runs an image's Python, whatever its name there.
PYTHON = script.text("python")
# A node's console says these.
WAITS, HAS_SECRETS = "waits for its secrets", "has its secrets"
WAITS_FOR_HOSTS = "muster waits: "
# In a container that an older Muster has started, each program is a module of its own (core/formats.py: LABELS).
_NODE_PROGRAM = (
    "import runpy, sys; from importlib.util import find_spec; "
    f"name = '{NODE_PROGRAMS}' if find_spec('{TRAINER}') else f'trainer.node.{{sys.argv.pop(1)}}'; "
    "runpy.run_module(name, run_name='__main__', alter_sys=True)"
)
VARIABLES_FIRST, VARIABLES_ASIDE = "/dev/stdin", "/dev/fd/3"
# In brackets, a backslash of its own; elsewhere what only sed takes for another character, and grep for the letter.
_OF_SED = re.compile(r"(\[\^?\]?(?:\[[:.=].*?[:.=]\]|[^]])*\])|\\([acdfnortvx])|\\.")
# The most bytes of a document or of one piece of a growing file: no line may exceed LONGEST_LINE of door/framing.py.
PIECE = 256 << 10
# The most bytes of sent.json.
MANIFEST = 8 << 20
# Only this much of the end of a rank's events is searched.
_TAIL = 64 << 20
# On a host, the claims of all users are in the folder of this name and 16 digits.
_CLAIMS = "muster-claims"
# A driver that hangs takes nvidia-smi along. The name is the last column, because it may hold commas.
GPU_PATIENCE_S, GPU_COLUMNS = 10, "index,uuid,memory.used,memory.total,utilization.gpu,name"


class OwnClaim(NamedTuple):
    """The claim of a node on its host: its name there, and its text. `waits`: the node changes it, and reads others.

    `image`: an image that is there, of which nothing runs; the engine makes the folder of claims by its help.
    """

    name: str = ""
    text: str = ""
    image: str = ""
    waits: bool = False


NO_CLAIM = OwnClaim()


def look() -> Argv:
    """The host's facts, for facts.parse. Changes nothing."""
    return script("look", str(_ENGINE_PATIENCE_S), SILENT, GPU_COLUMNS)


def start(
    folder: str,
    owner: str,
    command: Sequence[str],
    label: str,
    new: bool = False,
    keep: Sequence[str] = (),
    claim: str = "",
    own: OwnClaim = NO_CLAIM,
) -> Argv:
    """Make the run folder, run `command`, which makes a container, and give the container its secrets.

    Standard input: `line`s: the variables for VARIABLES_FIRST, the secrets (empty: there are none), and with a claim of
    its own `claims_folder()`.
    `label`: the value of the container's label `muster.start`, which no other container has. `new`: the folder must
    not exist yet. `keep`: paths in the container, each of which has a folder below `keep` of the run folder. `claim`:
    the claim that must still hold the container's GPUs. `own`: the claim that is the node's.
    """
    own_words = (own.name, own.text, own.image, "waits" * own.waits)
    words = (folder, owner, label, "new" * new, PYTHON, str(TAKEN_WITHIN_S), "\n".join(keep), claim, *own_words)
    return script("start", *words, *command)


def image_python(*words: str) -> Argv:
    """The command of a container that runs its image's Python with these words."""
    return "sh", "-c", PYTHON, "sh", *words


def node_program(name: str, *words: str) -> Argv:
    """The command of a run's container that runs one of the programs beside its agent (trainer/node/)."""
    return image_python("-P", "-c", _NODE_PROGRAM, name, *words)


def rehearse(folder: str, owner: str, keep: Sequence[str], command: Sequence[str]) -> Argv:
    """Run a command that mounts `folder` as a run's, and remove the folder. Standard input as `with_variables` has it.

    `owner`, `keep`: as `start` takes them.
    """
    return script("rehearse", folder, owner, "\n".join(keep), *command)


def claims_folder() -> bytes:
    """What a host's engine unpacks in /var/tmp if there is no folder for claims yet: one that is root's, open to all.

    Its name cannot be guessed, so that no user can put something else there first.
    """
    folder = tarfile.TarInfo(f"{_CLAIMS}.{secrets.token_hex(8)}")
    folder.type, folder.mode, folder.mtime = tarfile.DIRTYPE, 0o1777, int(time.time())
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.addfile(folder)
    return packed.getvalue()


def line(data: bytes) -> bytes:
    """`data` as one line of standard input, in base64."""
    return base64.b64encode(data) + b"\n"


def variable_lines(variables: Mapping[str, str]) -> bytes:
    """The variables as `docker run --env-file` reads them."""
    return "".join(f"{name}={value}\n" for name, value in sorted(variables.items())).encode()


def follow(name: str, folder: str, mark: str, since: str, every_s: float) -> Argv:
    """Report what changes in a node's container and run folder, until the container ends. Standard input: `here`.

    `since`: the console from this time on, or all of it.
    """
    return script("follow", name, folder, mark, since, str(PIECE), f"{every_s:g}")


def here(files: Mapping[str, str | int]) -> bytes:
    """What who follows a run has of its growing files: a line each, for a system bears only so much in a command."""
    return "".join(f"{known} {path}\n" for path, known in sorted(files.items())).encode()


def document(run: str, name: str) -> Argv:
    """The first 256 KiB of a file in a run's folder; empty if it is not a plain file."""
    return script("document", run, name, str(PIECE))


def last_words(folder: str) -> Argv:
    """One JSON document on each line: the verdicts of node and ranks; each rank's last step, checkpoint, begin, end."""
    return script("last-words", folder, str(PIECE), str(_TAIL))


def status(runs: Sequence[str]) -> Argv:
    """For status.parse: last steps and verdicts of these runs of ours, and the GPUs."""
    return script("status", str(GPU_PATIENCE_S), GPU_COLUMNS, *runs)


def gpus() -> Argv:
    """For gpus.parse: the GPUs, and each process that computes on them with its user and container."""
    return script("gpus", str(GPU_PATIENCE_S), GPU_COLUMNS)


def console(container: str, since: str, mark: str, pattern: str) -> Argv:
    """A container's console, each line after its time. With a mark: follow it, and send the mark at times.

    `pattern`: only lines whose text this extended regular expression finds.
    """
    words = ("--timestamps", *(("--since", since) if since else ()), container)
    pattern = _OF_SED.sub(lambda part: part[1].replace("\\", r"\\") if part[1] else part[2] or part[0], pattern)
    if not mark:
        return script("console-now", pattern, *words)
    return script("console", mark, pattern, "--follow", *words)


def rank_log(run: RunId, rank: int, container: str, mark: str, pattern: str = "") -> Argv:
    """A rank's own log; with a pattern, those of its lines that it finds.

    With a container: follow it until the container ends, and send the mark at times.
    """
    return script("rank-log", run, f"rank-{rank}.log", container, mark, pattern)
