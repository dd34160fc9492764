"""`fab explain FILE...|FOLDER|-|RUN`: read the output of a failed run, name its cause."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, BinaryIO

from fabric import Connection
from invoke.exceptions import Exit
from invoke.parser.argument import Argument

from ..core.errors import DONE, FAILED, DeployError, UsageError
from ..core.printable import visible
from ..core.program import FAB
from ..explain.cause import DOCS, Explanation, judge
from ..explain.read import CHUNK, Reading, read
from ..report.console import Console
from ..run import folders, record
from . import exit
from .command import Command, command

SHOWN, MOST_FILES = 240, 2000
LOGS = ("logs/*.log", "*.log", "*.txt", "*.out", "*.err")
_SILENT = ": no error and no end in it, and nothing later than what the others say"
_STDIN, _HINT = "-", f"name files, a folder of logs, a run (`{FAB} runs`), or - for standard input"


class _AnyNumber(Command):
    """Takes any number of files: it declares as many words as were typed, since invoke takes only declared words."""

    def argspec(self, body: Callable[..., Any]) -> Signature:
        """The signature without **more, which takes the words after the first."""
        sig: Signature = super().argspec(body)
        return sig.replace(parameters=[p for p in sig.parameters.values() if p.kind != Parameter.VAR_KEYWORD])

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """The arguments of the command line; for --help only the options."""
        first, *options = list[Argument](super().get_arguments(ignore_unknown_help))
        after = sys.argv[sys.argv.index("explain") + 1 :] if "explain" in sys.argv[1:] else []
        if any(word in ("--help", "-h") for word in after):
            return options
        words = [word for word in after if word == _STDIN or not word.startswith("-")]
        return [first, *(Argument(name=f"file-{n}", positional=True) for n in range(2, len(words) + 1)), *options]


@command(
    example=(f"{FAB} explain slurm-4711.out", f"{FAB} explain latest", f"torchrun train.py 2>&1 | {FAB} explain -"),
    codes={DONE: "it names a cause", FAILED: "no known cause fits, or nothing failed"},
    klass=_AnyNumber,
    positional=["what"],
    help={
        "what": "files, a folder of logs, - for standard input, or a run: its id or latest",
        "json": "write one JSON object",
    },
    name="explain",
)
def explain_task(context: Connection, what: str, json: bool = False, **more: str) -> None:
    """Name the cause of a failed run, from its output, or what to check.

    WHAT is one or more files, a folder of logs, a run, or - for standard
    input. The output may come from Muster or from any torchrun.
    """
    console = Console(json)
    raise Exit(code=exit.code_of(console, lambda: tell([what, *more.values()], console)))


def tell(whats: Sequence[str], console: Console) -> int:
    """Explain files, folders, runs or standard input. Raises UsageError if there is nothing to read."""
    explanation = judge(readings_of(whats, console))
    console.data({"kind": "explanation", **explanation.json()})
    console.text("\n".join(lines_of(explanation, _script_of(whats))))
    return DONE if explanation.cause else FAILED


def readings_of(whats: Sequence[str], console: Console) -> list[Reading]:
    """Read each stream, one after another. Raises UsageError if there is none, or one cannot be read."""
    sources = [source for what in whats for source in _sources(what)]
    names = _names(sources)
    total = sum(source.stat().st_size for source in sources if isinstance(source, Path))
    done = 0
    with console.waiting("reading") as say:

        def heard(size: int) -> None:
            say(f"{(done + size) >> 20} of {total >> 20} MB" if total else f"{size >> 20} MB")

        readings = []
        for name, source in zip(names, sources, strict=True):
            with closing(_opened(source)) as stream:
                readings.append(read(name, _pieces(stream, str(source)), heard))
            done += source.stat().st_size if isinstance(source, Path) else 0
    return readings


def lines_of(explanation: Explanation, script: str = "") -> list[str]:
    """The explanation as lines for people, with control characters of the logs made visible.

    `script`: the run's script and its arguments, if its record has them.
    """
    whose = " (the script's own fault)" if explanation.script and explanation.cause != "script-error" else ""
    name = explanation.cause or ("none" if explanation.ended_well else "not known")
    lines = [f"cause     {name}: {visible(explanation.what)}{whose}"]
    if explanation.maybe:
        lines.append(f"or        {', '.join(explanation.maybe)}: the same words")
    if explanation.first:
        lines.append(f"first     {visible(explanation.first)}")
    for line in explanation.evidence:
        who = f" ({line.who})" if line.who else ""
        lines.append(f"evidence  {visible(f'{line.node}:{line.number}{who}: {line.text[:SHOWN]}')}")
    if explanation.silent:
        lines.append(f"silent    {visible(', '.join(explanation.silent))}{_SILENT}")
    if explanation.victims:
        lines.append(f"left out  words of ranks that lost a peer: {explanation.victims} lines")
    # A command for a script that nobody has named cannot be typed.
    if script or "SCRIPT" not in explanation.next.split():
        lines.append(f"next      {visible(explanation.next.replace('SCRIPT', script))}")
    if explanation.cause:
        lines.append(f"more      {DOCS}#{explanation.cause}")
    return lines


def _script_of(whats: Sequence[str]) -> str:
    """The script of the run that is explained; empty if it is no run here, or not of a script that torchrun starts."""
    with suppress(DeployError, ValueError):
        folder = Path(whats[0]) if os.path.isdir(whats[0]) else record.find(folders.RUNS, whats[0])
        known = record.own(folder) if len(whats) == 1 else {}
        words = [str(word) for word in known.get("arguments", ())]
        if known.get("script") and words and (words[0] == "-m" or not words[0].startswith("-")):
            return shlex.join(words)
    return ""


def _sources(what: str) -> list[Path | None]:
    """Files to read; None is standard input."""
    if what == _STDIN:
        return [None]
    path = Path(what).expanduser()
    if path.is_dir():
        return list(_in_folder(path, what))
    if path.exists():
        return [path]
    if os.sep in what or path.suffix:
        raise UsageError(f"{what}: no such file", _HINT)
    try:
        folder = record.find(folders.RUNS, what)
    except UsageError:
        raise UsageError(f"{what}: no such file, folder or run", _HINT) from None
    return list(_in_folder(folder, what))


def _in_folder(folder: Path, what: str) -> Sequence[Path]:
    """The logs in a folder, or in its subfolders if it has none itself. Plain files only: no links, no pipes."""
    for candidates in (*(sorted(folder.glob(pattern)) for pattern in LOGS), sorted(folder.rglob("*.log"))):
        files = [file for file in candidates if stat.S_ISREG(file.lstat().st_mode)]
        if files:
            return files[:MOST_FILES]
    raise UsageError(
        f"{what}: no logs in {folder}", "name a file with the output, or a folder with one *.log file per node"
    )


def _names(sources: Sequence[Path | None]) -> list[str]:
    """A name for each: its stem if that is unique, else its path."""
    stems = [source.stem if source else "stdin" for source in sources]
    return [
        str(source) if source and stems.count(stem) > 1 else stem for source, stem in zip(sources, stems, strict=True)
    ]


def _opened(source: Path | None) -> BinaryIO:
    if source is None:
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    try:
        return source.open("rb")
    except OSError as fault:
        raise UsageError(f"{source}: cannot be read: {fault.strerror}", _HINT) from fault


def _pieces(stream: BinaryIO, name: str) -> Iterator[bytes]:
    try:
        while piece := stream.read(CHUNK):
            yield piece
    except OSError as fault:
        raise UsageError(f"{name}: cannot be read: {fault.strerror}", _HINT) from fault
