"""Why a script failed: a verdict with the last traceback and error that its ranks printed; whose `muster` it imports.

torchrun's own summary ends with `error_file: <N/A>` unless the script was written for it. The user needs the last lines
of the rank that failed first. The agent (agent.py) calls all this. Standard library only.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from muster.errors import FAILED

from ...verdict import Verdict
from ..launch import bare, style
from ..rank.place import in_run
from .peer_errors import line_reports_lost_peer, mentions_lost_peer
from .rank_lives import Life

_LAST_LINES, _RAY = 12, "muster.ray"
# More lines are searched for an abort: after that of NCCL's watchdog comes a stack of C++ frames.
_ABORT_LINES = 80
LINE_MOST = 300

_TORCHRUN = re.compile(r"[WEI]\d{4} \d\d:\d\d:\d\d\.\d+ .*torch/distributed/|\*{20,}$|Setting OMP_NUM_THREADS ")
# torch's own mark before a rank's traceback, once the rank has joined a process group.
_SPEAKER = re.compile(r"\[rank(\d+)\]: ?")
# The same mark, after a progress bar that has left its line without an end.
_UNENDED = re.compile(r"(?<=\S)(?=\[rank\d+\]: )")
_TRACEBACK = "Traceback (most recent call last)"
_LINKS = ("During handling of the above exception", "The above exception was the direct cause")
# Errors of torchrun, `accelerate launch` and mp.spawn that only say that another process failed, which says why itself.
_HANDED_ON = re.compile(
    r"torch\.distributed\.elastic\.multiprocessing\.errors\.ChildFailedError|subprocess\.CalledProcessError|"
    r"torch\.multiprocessing\.spawn\.ProcessExitedException: process \d+ terminated with exit code"
)
# The same for a parent that interrupts itself once its child has failed, as OpenNMT's does.
_INTERRUPT = re.compile(r"KeyboardInterrupt\b")
# gloo's message for a rank beyond the world size that the script passed.
_TOO_FEW = re.compile(r"gloo/context\.cc:\d+\] rank < size\. \d+ vs (\d+)")
_VARIABLE = re.compile(r"KeyError: '([A-Z]\w{1,80})'")
# A failed import of `muster`, or of a name in it: "cannot import name 'Training' from 'muster' (...)".
_MUSTER = re.compile(r"\bmodule 'muster\b|\bfrom 'muster\b|No module named 'muster\.")
# The errors of torch and of Python when a bare rank (bare.py) joins a process group without torchrun's variables.
_MISSED_BARE = re.compile(
    r"environment variable (?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT) expected, but not set|"
    r"KeyError: '(?:LOCAL_RANK|RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT)'"
)
# Errors that show how to mend the script, each with that remedy.
_REMEDIES = {
    # Also a menu that reads single keys, such as that of `accelerate config`.
    r"EOFError: EOF when reading a line|termios\.error: \(25, ": "nobody can type an answer in a run: give it as an "
    "option or a variable",
    r"bdb\.BdbQuit": "nobody can type into a debugger in a run: remove it; `muster why` shows each rank's line",
    "RuntimeError: An attempt has been made to start a new process before": "each process that the script starts reads "
    'its file again: put the code that starts them below `if __name__ == "__main__":`',
}
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# The last message of argparse and click before they end a program with code 2, and of C and C++ before an abort.
_LAST_MESSAGES = {
    2: re.compile(r"(?:\S{1,200}: error|Error): \S.*"),
    -signal.SIGABRT: re.compile(r"Fatal Python error: \S.*|\s*what\(\): +\S.*|.{1,200}: Assertion .{1,200} failed\.?$"),
}
_ERROR = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)(: .*)?$")


def why_failed(
    last_words: LastWords, how: str, script: str, node: str, life: Life, own_library: str = "", cause: str = ""
) -> Verdict:
    """The verdict on a script whose rank `life` failed first on this node. `how` it ended, and its `last_words`.

    `own_library`: the user's own module `muster`, which the script imports instead of Muster's. `cause`: the cause, if
    the last words do not show it.
    """
    message = f"{script} {how}"
    if (life.code or 0) > 0 and not last_words.error and not cause:
        message, cause = f"{message} without an exception", "left-early"
    elif last_words.error and (
        life.code == FAILED or is_handed_on(life, last_words) or _says_last(life, last_words.error)
    ):
        message += f": {last_words.error}"[:LINE_MOST]
    message = "\n    ".join([message, *(line[:LINE_MOST] for line in last_words.words)])
    log = f"logs/rank-{in_run(life.rank)}.log shows all that it printed" if os.environ.get("MUSTER_RUN_DIR") else ""
    remedy = _remedy(last_words.error, own_library)
    if few := _TOO_FEW.search(message):
        knows = f"the script formed a group of {few[1]}, but {life.world} ranks were started"
        remedy = f"{knows}: the script must know of all hosts (Lightning: Trainer(num_nodes=...))"
    hint = "; ".join(filter(None, (remedy, log)))
    return Verdict("failed", FAILED, life.rank, node, 0, message, hint, life.ended, cause)


def _remedy(error: str, own_library: str) -> str:
    """A remedy for an error that comes from how the script was started, or from its folder; empty if there is none."""
    if os.environ.get(bare.RANK) == "1" and _MISSED_BARE.search(error):
        typed = "a single rank that you start as `python` gets no torchrun variables"
        return f"{typed}: --nproc 1 in front of the script sets them"
    if own_library and _MUSTER.search(error):
        return f"`import muster` loaded the script's own {own_library}, not Muster's library: rename it"
    variable = _VARIABLE.match(error)
    if variable and (name := style.style_that_sets(variable[1])):
        return f"--style {name} gives each rank {variable[1]}"
    return next((remedy for words, remedy in _REMEDIES.items() if re.match(words, error)), "")


@dataclass(frozen=True)
class LastWords:
    """A rank's last words, the error in them, and whether that is a victim's: it only says that a peer went away."""

    words: tuple[str, ...] = ()
    error: str = ""
    victim: bool = False


def read_last_words(console: str, life: Life, launcher: bool = False) -> LastWords:
    """The last words of the rank `life`, from its whole output.

    Lines of other ranks are left out, if torch has marked them. `launcher`: the rank is a launcher of the user, and the
    marked lines are those of the ranks that it started.
    """
    lines = [
        line
        for line in map(str.rstrip, _UNENDED.sub("\n", _COLOURS.sub("", console)).splitlines())
        if _SPEAKER.sub("", line) and not _TORCHRUN.search(line)
    ]
    whole, lines = lines, _before_handed_on(lines, launcher, _INTERRUPT if life.code == -signal.SIGINT else _HANDED_ON)
    speaker = _first_to_fail(lines, life.rank) if launcher or lines != whole else life.rank
    lines = [line for line in lines if _speaker(line) in (None, speaker)]
    if speaker in map(_speaker, lines[-_LAST_LINES:]):
        lines = [line for line in lines if _speaker(line) == speaker]
    bare = [_SPEAKER.sub("", line) for line in lines]
    errors = _chain(bare)
    victim = bool(errors) and life.code == FAILED and line_reports_lost_peer(errors[0])
    # NCCL's watchdog and an exception in gloo's own thread abort the process.
    if life.code == -signal.SIGABRT and (peer_words := list(filter(mentions_lost_peer, bare[-_ABORT_LINES:]))):
        victim, errors = True, peer_words[:1]
    last = errors[-1].splitlines()[0] if errors else ""
    ending = _up_to(lines, last)
    start = max((at for at, line in enumerate(ending) if _TRACEBACK in line), default=0)
    if not last or (life.code != FAILED and not victim):
        last = next((line.strip() for line in reversed(bare[-_ABORT_LINES:]) if _says_last(life, line)), last)
    # A line of other output may break up a traceback; then take the last line that looks like an error.
    if not (_ERROR.match(last) or _says_last(life, last)):
        last = next(filter(_ERROR.match, reversed(bare[-_LAST_LINES:])), last)
    return LastWords(tuple(ending[start:]), _unwrapped(last, bare), victim)


def _up_to(lines: Sequence[str], error: str) -> Sequence[str]:
    """The last lines. If much was printed after the error: the lines up to it, of the rank that printed it."""
    at = max(
        (at for at, line in enumerate(lines) if error and error.startswith(_SPEAKER.sub("", line))), default=len(lines)
    )
    if at < len(lines) - _LAST_LINES:
        lines = [line for line in lines[: at + 1] if _speaker(line) == _speaker(lines[at])]
    return lines[-_LAST_LINES:]


def _says_last(life: Life, line: str) -> bool:
    """Whether this line explains why a rank ended with such a code."""
    says = _LAST_MESSAGES.get(life.code or 0)
    return bool(says and says.match(line))


def _unwrapped(error: str, lines: Sequence[str]) -> str:
    """The whole error, if the library rich printed it: below a frame, and wrapped at the frame's width."""
    at = next((at for at, line in enumerate(lines) if at and line == error and lines[at - 1].startswith("╰")), None)
    if at is None:
        return error
    width, before = len(lines[at - 1]), error
    for line in lines[at + 1 : at + _LAST_LINES]:
        # rich begins a new line only if the next word does not fit; a word that is longer than a line fills its lines.
        if len(before) + 1 + len(line.split()[0]) <= width:
            break
        error += " " * (len(before) < width or " " in before) + line
        before = line
    return error[:LINE_MOST]


def with_noted_error(heard: LastWords, noted: str) -> LastWords:
    """The last words that were `heard`; if they show no error, with the exception that the rank `noted` itself."""
    return (
        heard
        if heard.error or not noted
        else LastWords(heard.words, noted, heard.victim or line_reports_lost_peer(noted))
    )


def is_handed_on(life: Life, last_words: LastWords) -> bool:
    """Whether a rank that KeyboardInterrupt ended had printed an error before it."""
    return life.code == -signal.SIGINT and bool(last_words.error) and not _INTERRUPT.match(last_words.error)


def _before_handed_on(lines: list[str], launcher: bool, hands_on: re.Pattern[str]) -> list[str]:
    """The lines before the traceback that only reports another process's failure.

    If the rank is a script, not a launcher, they are cut only if an error before that traceback explains the failure.
    """
    start = 0
    for at, line in enumerate(lines):
        if line.startswith(_TRACEBACK):
            start = at
        elif start and hands_on.match(line):
            chain = _chain(lines[:start][-_ABORT_LINES:])
            # If lines were printed between an error and an interrupt, the script had continued after that error.
            went_on = hands_on is _INTERRUPT and "\n" in "".join(chain[-1:])
            return lines[:start] if launcher or (chain and not went_on) else lines
    return lines


def _first_to_fail(lines: Sequence[str], rank: int) -> int:
    """The rank whose traceback comes first, and is not about a lost peer; `rank` if no rank printed a traceback."""
    speakers = dict.fromkeys(_speaker(line) for line in lines if _TRACEBACK in line)

    def knows_nothing(speaker: int) -> bool:
        errors = _chain([_SPEAKER.sub("", line) for line in lines if _speaker(line) == speaker])
        return not errors or line_reports_lost_peer(errors[0])

    return min((speaker for speaker in speakers if speaker is not None), key=knows_nothing, default=rank)


def _chain(lines: Sequence[str]) -> list[str]:
    """The errors of the last traceback and of the tracebacks that led to it, oldest first; each with all its lines.

    If the first line of an error ends with a colon, the message is on the next line, which is joined to it.
    """
    chain: list[list[str]] = []
    linked = inside = False
    for line in lines:
        if _TRACEBACK in line:
            chain = [*chain, []] if linked else [[]]
            linked, inside = False, True
        elif line.startswith(_LINKS):
            linked, inside = True, False
        elif inside and chain[-1] and chain[-1][0].endswith(":"):
            chain[-1][0] += f" {line.strip()}"
        elif inside and (chain[-1] or not line.startswith(" ")):
            chain[-1].append(line)
    return ["\n".join(error) for error in chain if error]


def _speaker(line: str) -> int | None:
    match = _SPEAKER.match(line)
    return int(match[1]) if match else None


def name_of(arguments: Sequence[str]) -> str:
    """A name for what `--script ARGUMENTS` starts: train.py, or pkg.train after -m; for Ray's head, its driver."""
    if list(arguments[:3]) == ["-m", _RAY, "head"]:
        arguments = [word for word in arguments[3:] if word not in ("python", "python3")] or [_RAY]
    return next((word for word in arguments if not word.startswith("-")), "the script")


def own_library(arguments: Sequence[str]) -> str:
    """The user's own module `muster` that `--script ARGUMENTS` imports instead of Muster's; empty if there is none.

    Python first looks in the script's folder; for a module after -m, in the current folder. A shell script is assumed
    to start a program in the current folder.
    """
    script = next((word for word in arguments if word.endswith(".py") or word in ("-m", "--no-python")), "")
    if script == "--no-python":
        return ""
    folder = Path(script).resolve().parent if script.endswith(".py") else Path.cwd()
    # A folder without an __init__.py comes after every package with one, so it hides nothing.
    own_modules = [folder / name for name in ("muster/__init__.py", "muster.py") if (folder / name).is_file()]
    is_ours = (folder / "muster/training.py").is_file()
    return os.path.relpath(own_modules[0]) if own_modules and not is_ours else ""
