"""The commands that a host runs for us, as argument lists. door/ quotes them.

Each command is one round trip and needs a POSIX shell and the usual tools; its text is in scripts/. Most answers
consist of lines with a word, a blank and a value, which facts.py, status.py, gpus.py and logs.py read.
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

# Makes the command for a script in scripts/. The script's first comment describes its arguments and its answer.
script = Scripts(__file__)
# Where a container sees its run's folder. The folder's path on the host tells whose run it is.
RUN_IN_CONTAINER = "/muster/run"
# An engine that hangs must not block the command: after this many seconds SILENT replaces the engine's answer.
_ENGINE_PATIENCE_S, SILENT = 15, "no answer"
# A shell text that runs an image's Python, whether it is called `python` or `python3`.
PYTHON = script.text("python")
# Lines that a node prints on its console.
WAITS, HAS_SECRETS = "waits for its secrets", "has its secrets"
WAITS_FOR_HOSTS = "muster waits: "
# In a container that an older Muster has started, each program is a separate module (core/formats.py: LABELS).
_NODE_PROGRAM = (
    "import runpy, sys; from importlib.util import find_spec; "
    f"name = '{NODE_PROGRAMS}' if find_spec('{TRAINER}') else f'trainer.node.{{sys.argv.pop(1)}}'; "
    "runpy.run_module(name, run_name='__main__', alter_sys=True)"
)
VARIABLES_FIRST, VARIABLES_ASIDE = "/dev/stdin", "/dev/fd/3"
# What sed -E reads differently from grep -E. In brackets, each backslash must be doubled to stay a backslash.
# Elsewhere, sed reads `\n` and the like as special characters; grep reads them as the letter, so the letter alone is
# used.
_SED_ESCAPES = re.compile(r"(\[\^?\]?(?:\[[:.=].*?[:.=]\]|[^]])*\])|\\([acdfnortvx])|\\.")
# The most bytes of a document or of one piece of a growing file: no line may exceed LONGEST_LINE of door/framing.py.
PIECE = 256 << 10
# The most bytes of sent.json.
MANIFEST = 8 << 20
# How many bytes at the end of a rank's events are searched.
_TAIL = 64 << 20
# On a host, the folder with the claims of all users has this name, followed by a dot and 16 hex digits.
_CLAIMS = "muster-claims"
# If the driver hangs, nvidia-smi hangs too. The name is the last column, because it may contain commas.
GPU_PATIENCE_S, GPU_COLUMNS = 10, "index,uuid,memory.used,memory.total,utilization.gpu,name"


class OwnClaim(NamedTuple):
    """The claim of a node on its host: its name there, and its text. `waits`: the node changes it and reads others.

    `image`: an image on the host; none of its programs runs: the engine needs an image to make the folder of claims.
    """

    name: str = ""
    text: str = ""
    image: str = ""
    waits: bool = False


NO_CLAIM = OwnClaim()


def look() -> Argv:
    """Ask for the host's facts, for facts.parse. Changes nothing."""
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
    """Make the run folder, run `command`, which creates a container, and give the container its secrets.

    Standard input, in lines of base64: the variables for VARIABLES_FIRST, the secrets (empty: there are none), and,
    with an own claim, `claims_folder()`. `label`: the value of the container's label `muster.start`, which no other
    container has. `new`: the folder must not exist yet. `keep`: paths in the container; each is stored below `keep` in
    the run folder. `claim`: the deploy's claim, which must still hold the container's GPUs. `own`: the node's own
    claim.
    """
    own_words = (own.name, own.text, own.image, "waits" * own.waits)
    words = (folder, owner, label, "new" * new, PYTHON, str(TAKEN_WITHIN_S), "\n".join(keep), claim, *own_words)
    return script("start", *words, *command)


def image_python(*words: str) -> Argv:
    """The command, inside a container, that runs its image's Python with these arguments."""
    return "sh", "-c", PYTHON, "sh", *words


def node_program(name: str, *words: str) -> Argv:
    """The command, inside a run's container, that runs one of the programs next to its agent (trainer/node/)."""
    return image_python("-P", "-c", _NODE_PROGRAM, name, *words)


def rehearse(folder: str, owner: str, keep: Sequence[str], command: Sequence[str]) -> Argv:
    """Run a command that mounts `folder` like a run's, then remove `folder`. Input: as with_variables.sh takes it.

    `owner`, `keep`: as in `start`.
    """
    return script("rehearse", folder, owner, "\n".join(keep), *command)


def claims_folder() -> bytes:
    """A tar with the folder for claims, root's and open to all; a host's engine unpacks it in /var/tmp if needed.

    The folder's name cannot be guessed, so no user can put something else there first.
    """
    folder = tarfile.TarInfo(f"{_CLAIMS}.{secrets.token_hex(8)}")
    folder.type, folder.mode, folder.mtime = tarfile.DIRTYPE, 0o1777, int(time.time())
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.addfile(folder)
    return packed.getvalue()


def base64_line(data: bytes) -> bytes:
    """`data` as one line of standard input, in base64."""
    return base64.b64encode(data) + b"\n"


def variable_lines(variables: Mapping[str, str]) -> bytes:
    """The variables in the form that `docker run --env-file` reads."""
    return "".join(f"{name}={value}\n" for name, value in sorted(variables.items())).encode()


def follow(name: str, folder: str, mark: str, since: str, every_s: float) -> Argv:
    """Report changes in a node's container and run folder until the container ends. Standard input: `file_lines`.

    `since`: the time from which to send the console; empty: all of it.
    """
    return script("follow", name, folder, mark, since, str(PIECE), f"{every_s:g}")


def file_lines(files: Mapping[str, str | int]) -> bytes:
    """What a follower already has of the growing files: one line each. A command line could be too long for this."""
    return "".join(f"{known} {path}\n" for path, known in sorted(files.items())).encode()


def document(run: str, name: str) -> Argv:
    """Read the first 256 KiB of a file in a run's folder; empty if it is not a plain file."""
    return script("document", run, name, str(PIECE))


def last_words(folder: str) -> Argv:
    """One JSON document on each line: the verdicts of node and ranks; each rank's last step, checkpoint, begin, end."""
    return script("last-words", folder, str(PIECE), str(_TAIL))


def status(runs: Sequence[str]) -> Argv:
    """Ask for the last steps and verdicts of these runs of ours, and the GPUs, for status.parse."""
    return script("status", str(GPU_PATIENCE_S), GPU_COLUMNS, *runs)


def gpus() -> Argv:
    """Ask for the GPUs, and for each process that computes on them with its user and container, for gpus.parse."""
    return script("gpus", str(GPU_PATIENCE_S), GPU_COLUMNS)


def console(container: str, since: str, mark: str, pattern: str) -> Argv:
    """Read a container's console, each line after its time. With a mark: follow it, and send the mark regularly.

    `pattern`: send only lines whose text matches this extended regular expression.
    """
    words = ("--timestamps", *(("--since", since) if since else ()), container)
    pattern = _SED_ESCAPES.sub(lambda part: part[1].replace("\\", r"\\") if part[1] else part[2] or part[0], pattern)
    if not mark:
        return script("console-now", pattern, *words)
    return script("console", mark, pattern, "--follow", *words)


def rank_log(run: RunId, rank: int, container: str, mark: str, pattern: str = "") -> Argv:
    """Read a rank's own log; with a pattern, only the lines that match it.

    With a container: follow the log until the container ends, and send the mark regularly.
    """
    return script("rank-log", run, f"rank-{rank}.log", container, mark, pattern)
