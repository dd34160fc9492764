"""What is asked of a host and done there, as argument lists: built here, quoted by the door to SSH.

They need a POSIX shell and the usual tools; each is one round trip. What host/facts.py reads is written here: a word,
a blank, a value.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

from ..core.errors import NOBODY_WAITS
from ..core.scripts import Scripts

_SCRIPT = Scripts(__file__)
# Where a container sees its run's folder. Which folder of the host that is tells whose run it is.
RUN_IN_CONTAINER = "/muster/run"
# The engine's patience: one that stands still would hold everybody. What is said for it then.
_ENGINE_PATIENCE_S, SILENT = 15, "no answer"
# Runs an image's Python, by whichever name it has there.
PYTHON = _SCRIPT.text("python")
# What a node's console says.
WAITS, HAS_SECRETS = "waits for its secrets", "has its secrets"
_TAKEN_WITHIN_S = 90
VARIABLES_FIRST, VARIABLES_ASIDE = "/dev/stdin", "/dev/fd/3"
# Bytes of a document, and of a piece of what grows, so that no line is longer than ssh/command.py's LONGEST_LINE.
PIECE = 256 << 10
# Of what ranks say of their steps no more than the end is searched.
_TAIL = 64 << 20


def look() -> tuple[str, ...]:
    """All that host_facts.parse reads. Changes nothing."""
    return _SCRIPT("look", str(_ENGINE_PATIENCE_S), SILENT)


def routes(peers: Sequence[str]) -> tuple[str, ...]:
    """A line of `ip -j route get` for each peer, in their order; empty where there is no way."""
    return _SCRIPT("routes", *peers)


def unreached(peers: Sequence[str], port: int) -> tuple[str, ...]:
    """A line `address why` for each peer whose port does not answer: a refusal is an answer. Nothing without bash."""
    return _SCRIPT("unreached", str(port), *peers)


def missing(paths: Sequence[str]) -> tuple[str, ...]:
    """A line for each of the paths that is not there."""
    return _SCRIPT("missing", *paths)


def start(folder: str, owner: str, command: Sequence[str], label: str, new: bool = False) -> tuple[str, ...]:
    """Make the run folder, run `command`, which makes a container, and hand its secrets in.

    Standard input: two `line`s, the variables as VARIABLES_FIRST wants them, and the secrets (empty: there are none).
    `label`: what the container it makes has as `muster.start`, and no other one; `new`: the folder must not be there.
    """
    return _SCRIPT("start", folder, owner, label, "new" * new, PYTHON, str(_TAKEN_WITHIN_S), *command)


def clear(run: str) -> tuple[str, ...]:
    """Make a run's folder ready for its next start: what the last one said of its nodes goes."""
    return _SCRIPT("clear", run)


def undo(label: str, folder: str, fresh: bool) -> tuple[str, ...]:
    """Take back what the start with that label made, and only that: its container, and a folder that is `fresh`."""
    return _SCRIPT("undo", label, folder, "fresh" * fresh)


def hand_in(container: str) -> tuple[str, ...]:
    """Hand the secrets, a `line` on standard input, to a node that waits for them; an empty line asks whether it does.

    Ends with TAKEN, with NOBODY_WAITS, or with another code where a node waits and has not taken them.
    """
    return _SCRIPT("hand-in", container, PYTHON, str(NOBODY_WAITS))


def with_variables(command: Sequence[str]) -> tuple[str, ...]:
    """Run a command that reads variables from VARIABLES_ASIDE; they are the first `line` of its standard input."""
    return _SCRIPT("with-variables", *command)


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
    return _SCRIPT("follow", name, folder, mark, since, str(PIECE), f"{every_s:g}", *known)


def containers(run: str = "") -> tuple[str, ...]:
    """The containers of one run, or of all."""
    return _SCRIPT("containers", _label(run))


def console(name: str, since: str = "") -> tuple[str, ...]:
    """What a node's console said, each line with its time in front."""
    since_words = ("--since", since) if since else ()
    return ("docker", "logs", "--timestamps", *since_words, name)


def signal(name: str, run: str) -> tuple[str, ...]:
    """Send a signal to what runs of a run."""
    return _SCRIPT("signal", name, run)


def checkpoints() -> tuple[str, ...]:
    """The checkpoints of all runs: a line each, `unix-time run step-00000100`."""
    return _SCRIPT("checkpoints")


def document(run: str, name: str) -> tuple[str, ...]:
    """A file of a run's folder, its first 256 KiB; nothing where it is no plain file."""
    return _SCRIPT("document", run, name, str(PIECE))


def last_words(folder: str) -> tuple[str, ...]:
    """A JSON document a line: the verdicts that node and ranks left there, each rank's last step and checkpoint."""
    return _SCRIPT("last-words", folder, str(PIECE), str(_TAIL))


def remove(run: str = "") -> tuple[str, ...]:
    """Remove our containers of a run, or of all: `removed N`, then `left ["run", "user"]` for each of another user."""
    return _SCRIPT("remove", run)


def take_home(folder: str) -> tuple[str, ...]:
    """A run folder as a tar stream. Not compressed: what is written here had to be sent."""
    return _SCRIPT("take-home", folder)


def size_of(folder: str) -> tuple[str, ...]:
    """`KILOBYTES PATH` of a run folder: the sizes of its files, or the disk space they take where du knows no more."""
    return _SCRIPT("size-of", folder)


def _label(run: str) -> str:
    return f"muster.run={run}" if run else "muster.run"
