"""The commands that a host runs for us, as argument lists. ssh/ quotes them.

Each command is one round trip and needs a POSIX shell and the usual tools; its text lies in scripts/. Most answers are
lines of a word, a blank and a value, which facts.py, status.py, gpus.py and logs.py read.
"""

from __future__ import annotations

import base64
import io
import secrets
import tarfile
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..core.names import RunId
from ..core.scripts import Scripts

_SCRIPT = Scripts(__file__)
# A container sees its run's folder here. The folder's path on the host says whose run it is.
RUN_IN_CONTAINER = "/muster/run"
# An engine that hangs must not block the command: after this time we report SILENT instead of its answer.
_ENGINE_PATIENCE_S, SILENT = 15, "no answer"
# Runs an image's Python, whatever its name there.
PYTHON = _SCRIPT.text("python")
# A node's console says these.
WAITS, HAS_SECRETS = "waits for its secrets", "has its secrets"
WAITS_FOR_HOSTS = "muster waits: "
_TAKEN_WITHIN_S = 90
VARIABLES_FIRST, VARIABLES_ASIDE = "/dev/stdin", "/dev/fd/3"
# The most bytes of a document or of one piece of a growing file: no line may exceed LONGEST_LINE of door/framing.py.
PIECE = 256 << 10
# The most bytes of sent.json.
_MANIFEST = 8 << 20
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


def look() -> tuple[str, ...]:
    """The host's facts, for facts.parse. Changes nothing."""
    return _SCRIPT("look", str(_ENGINE_PATIENCE_S), SILENT)


def look_overlay() -> tuple[str, ...]:
    """What a network of a run's own has to keep clear of, for networks.parse. Changes nothing."""
    return _SCRIPT("look-overlay")


def routes(peers: Sequence[str]) -> tuple[str, ...]:
    """A line of `ip -j route get` for each peer, in their order; empty if there is no route."""
    return _SCRIPT("routes", *peers)


def unreached(peers: Sequence[str], port: int) -> tuple[str, ...]:
    """A line `address why` for each peer whose port does not answer; a refusal is an answer. Empty without bash."""
    return _SCRIPT("unreached", str(port), *peers)


def missing(paths: Sequence[str]) -> tuple[str, ...]:
    """A line for each path that does not exist."""
    return _SCRIPT("missing", *paths)


def make_folders(owner: str, paths: Sequence[str]) -> tuple[str, ...]:
    """Make the folders that are missing, for `owner` (uid:gid; empty: the login). A line `made PATH` for each."""
    return _SCRIPT("make-folders", owner, *paths)


def clean_list() -> tuple[str, ...]:
    """For leftovers.parse: our runs, images, folders, packages and caches."""
    return _SCRIPT("clean-list")


def clean_remove(kind: str, names: Sequence[str]) -> tuple[str, ...]:
    """Remove these of ours. A line `removed NAME`, `used NAME` or `failed NAME` for each."""
    return _SCRIPT("clean-remove", kind, *names)


def start(
    folder: str,
    owner: str,
    command: Sequence[str],
    label: str,
    new: bool = False,
    keep: Sequence[str] = (),
    claim: str = "",
    own: OwnClaim = NO_CLAIM,
) -> tuple[str, ...]:
    """Make the run folder, run `command`, which makes a container, and give the container its secrets.

    Standard input: `line`s: the variables for VARIABLES_FIRST, the secrets (empty: there are none), and with a claim of
    its own `claims_folder()`.
    `label`: the value of the container's label `muster.start`, which no other container has. `new`: the folder must
    not exist yet. `keep`: paths in the container, each of which has a folder below `keep` of the run folder. `claim`:
    the claim that must still hold the container's GPUs. `own`: the claim that is the node's.
    """
    own_words = (own.name, own.text, own.image, "waits" * own.waits)
    words = (folder, owner, label, "new" * new, PYTHON, str(_TAKEN_WITHIN_S), "\n".join(keep), claim, *own_words)
    return _SCRIPT("start", *words, *command)


def image_python(*words: str) -> tuple[str, ...]:
    """The command of a container that runs its image's Python with these words."""
    return "sh", "-c", PYTHON, "sh", *words


def node_program(name: str, *words: str) -> tuple[str, ...]:
    """The command of a run's container that runs one of the programs beside its agent (trainer/node/)."""
    return image_python("-P", "-m", f"trainer.node.{name}", *words)


def within(container: str, words: Sequence[str]) -> tuple[str, ...]:
    """A command beside the ranks of a node, or a shell, with a terminal: it ends when its input ends."""
    return "docker", "exec", "-i", container, *node_program("within", "--terminal", "--", *words)


def join(container: str) -> tuple[str, ...]:
    """Start the container of a node again. Answers `started`, or why not: `overlay`, or `claim` lines."""
    return _SCRIPT("join", container)


def clear(run: str) -> tuple[str, ...]:
    """Prepare a run's folder for its next start: remove what the last start wrote about its nodes."""
    return _SCRIPT("clear", run)


def undo(label: str, folder: str, fresh: bool) -> tuple[str, ...]:
    """Remove what the start with that label made, and only that: its container, and its folder if it is `fresh`."""
    return _SCRIPT("undo", label, folder, "fresh" * fresh)


def with_variables(command: Sequence[str]) -> tuple[str, ...]:
    """Run a command that reads variables from VARIABLES_ASIDE. Standard input begins with them, as one `line`."""
    return _SCRIPT("with-variables", *command)


def holder(port: int) -> tuple[str, ...]:
    """A line `holder WORDS`: who listens on a port there. Empty if that cannot be known."""
    return _SCRIPT("holder", str(port))


def rehearse(folder: str, owner: str, keep: Sequence[str], command: Sequence[str]) -> tuple[str, ...]:
    """Run a command that mounts `folder` as a run's, and remove the folder. Standard input as `with_variables` has it.

    `owner`, `keep`: as `start` takes them.
    """
    return _SCRIPT("rehearse", folder, owner, "\n".join(keep), *command)


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


def follow(
    name: str, folder: str, mark: str, since: str, files: dict[str, tuple[int, str]], every_s: float
) -> tuple[str, ...]:
    """Report what changes in a node's container and run folder, until the container ends.

    `since`: the console from this time on, or all of it; `files`: how many bytes of each growing file we have already,
    and the digits in its first 24 bytes, if it is this host's file.
    """
    known = [f"{size} {begin} {path}" for path, (size, begin) in sorted(files.items())]
    return _SCRIPT("follow", name, folder, mark, since, str(PIECE), f"{every_s:g}", *known)


def document(run: str, name: str) -> tuple[str, ...]:
    """The first 256 KiB of a file in a run's folder; empty if it is not a plain file."""
    return _SCRIPT("document", run, name, str(PIECE))


def last_words(folder: str) -> tuple[str, ...]:
    """One JSON document on each line: the verdicts of node and ranks; each rank's last step, checkpoint, begin, end."""
    return _SCRIPT("last-words", folder, str(PIECE), str(_TAIL))


def remove(run: str = "") -> tuple[str, ...]:
    """Remove our containers of a run, or of all runs.

    Answers `removed N`, then `left ["run", "user"]` for each container of another user.
    """
    return _SCRIPT("remove", run)


def delete(run: str) -> tuple[str, ...]:
    """Remove a run's folder. Answers `deleted FILES KILOBYTES`, or `running` if a container of ours still has it."""
    return _SCRIPT("delete", run)


def list_files(run: str) -> tuple[str, ...]:
    """For listing.parse: the files of a run's folder."""
    return _SCRIPT("list-files", run, str(_MANIFEST))


def take_in(run: str, name: str) -> tuple[str, ...]:
    """Write standard input into the run's folder, which is made if it is missing, as a file of that name."""
    return _SCRIPT("take-in", run, name)


def take_home(run: str) -> tuple[str, ...]:
    """A run's folder as a tar stream, not compressed: a host cannot make us write more bytes than it sends.

    Standard input: the paths to leave out, a line each.
    """
    return _SCRIPT("take-home", run)


def status(runs: Sequence[str]) -> tuple[str, ...]:
    """For status.parse: last steps and verdicts of these runs of ours, and the GPUs."""
    return _SCRIPT("status", str(GPU_PATIENCE_S), GPU_COLUMNS, *runs)


def runs() -> tuple[str, ...]:
    """For status.parse_runs: each run's folder."""
    return _SCRIPT("runs")


def gpus() -> tuple[str, ...]:
    """For gpus.parse: the GPUs, and each process that computes on them with its user and container."""
    return _SCRIPT("gpus", str(GPU_PATIENCE_S), GPU_COLUMNS)


def claims() -> tuple[str, ...]:
    """For gpus.parse: the claims that live on the machine."""
    return _SCRIPT("claims")


def console(container: str, since: str, mark: str = "", pattern: str = "") -> tuple[str, ...]:
    """A container's console, each line after its time. With a mark: follow it, and send the mark at times.

    `pattern`: only lines whose text this extended regular expression finds.
    """
    words = ("--timestamps", *(("--since", since) if since else ()), container)
    expression = _after_time(pattern) if pattern else ""
    if not mark:
        return _SCRIPT("console-now", expression, *words)
    return _SCRIPT("console", mark, expression, "--follow", *words)


def _after_time(pattern: str) -> str:
    """The pattern for a line that begins with its time."""
    return f"^[^ ]+ ({pattern[1:]})" if pattern.startswith("^") else f"^[^ ]+ .*({pattern})"


def rank_logs() -> tuple[str, ...]:
    """For logs.parse: the ranks' own logs of all runs."""
    return _SCRIPT("rank-logs")


def rank_log(run: RunId, rank: int, container: str, mark: str, pattern: str = "") -> tuple[str, ...]:
    """A rank's own log; with a pattern, those of its lines that it finds.

    With a container: follow it until the container ends, and send the mark at times.
    """
    return _SCRIPT("rank-log", run, f"rank-{rank}.log", container, mark, pattern)
