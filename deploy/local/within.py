"""`muster exec`, `muster shell` and `muster logs` for a run on this machine: commands next to its ranks, and output."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..core.errors import DONE, STOPPED, DeployError, UsageError
from ..core.names import NODE_PROGRAMS
from ..core.printable import console_line
from ..core.text import ranks_in_words
from ..engine import client
from ..host import commands
from ..job.load import refuse_no_rank
from ..job.option_words import command_of
from ..job.options import FLAG, Options
from ..report.console import Console
from ..run.environment import NODE
from ..run.files import folders, own_files, record
from . import attach, backends, processes

_LOOK_EVERY_S, _PIECE = 0.3, 1 << 20
_RANK_FILE = re.compile(r"rank-([0-9]{1,9})\.(?:log|jsonl)")


@dataclass(frozen=True)
class RankContext:
    """How to run a command next to a rank: the words before it and, for a process, its variables and folder.

    `guard`: a command that starts it so that it ends when its input ends (trainer/node/agent/within.py).
    """

    before: tuple[str, ...]
    guard: tuple[str, ...]
    environment: Mapping[str, str] | None = None
    folder: Path | None = None


def exec_here(options: Options, words: Sequence[str], console: Console) -> int:
    """Run a command next to one rank (default: rank 0) of a run on this machine; return its exit code."""
    beside = _beside(options, ("-i",))
    try:
        child = subprocess.Popen(
            [*beside.before, *beside.guard, "--", *words],
            env=beside.environment,
            cwd=beside.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as fault:
        raise DeployError(f"this machine: {fault.strerror}") from fault
    with child:
        try:
            while line := child.stdout.readline(_PIECE):  # type: ignore[union-attr]
                text = line.decode(errors="replace").rstrip("\n")
                if console.as_json:
                    console.data({"kind": "line", "line": text})
                else:
                    console.line(console_line(text))
                if console.gone:  # the reader has gone, for example `| head`
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            child.terminate()
            return STOPPED
    return child.returncode


def shell_here(options: Options, words: Sequence[str]) -> int:
    """Open a shell, or run `words`, next to a rank (default: rank 0) of a run on this machine; return its exit code."""
    if not sys.stdout.isatty():
        raise UsageError("there is no terminal here", f"without one: {command_of('exec', options, '-- COMMAND')}")
    beside = _beside(options, ("-it",))
    command = [*beside.before, *(words or [os.environ.get("SHELL", "sh") if beside.folder else "bash"])]
    before = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C in this terminal is for the program, not for Muster
    try:
        return subprocess.run(command, env=beside.environment, cwd=beside.folder, check=False).returncode
    except OSError as fault:
        raise DeployError(f"{command[0]}: {fault.strerror}") from fault
    finally:
        signal.signal(signal.SIGINT, before)


def _beside(options: Options, terminal: Sequence[str]) -> RankContext:
    """Find where a rank runs. Raises UsageError for a rank that is not a number, DeployError if it does not run."""
    run_dir, rank = record.find(options.run or "latest"), options.rank or "0"
    refuse_no_rank(rank)
    names = record.facts(run_dir).get("nodes") or []
    for head in processes.heads(run_dir):
        per = head.environment.get("PET_NPROC_PER_NODE", "1")
        place = int(rank) // max(1, int(per) if per.isdecimal() else 1)
        if place < len(names) and head.environment.get(NODE) == names[place]:
            work = run_dir / "work"
            home = {"HOME": str(run_dir / "home")} if (run_dir / "home").is_dir() else {}
            guard: tuple[str, ...] = (head.python, "-P", "-m", NODE_PROGRAMS, "within")
            return RankContext((), guard, {**head.environment, **home}, work if work.is_dir() else head.folder)
    if run_dir.name in backends.ComposeBackend.running(folders.RUNS, client.find_engine()):
        containers = client.containers(run_dir.name)
        ranks = max(1, len(list((run_dir / "ranks").glob("rank-*.jsonl"))) // max(1, len(containers)))
        place = int(rank) // ranks
        if place < len(names) and names[place] in containers:
            guard = commands.node_program("within")
            return RankContext(("docker", "exec", *terminal, containers[names[place]]), guard)
    raise DeployError(
        f"{run_dir.name}: its rank {rank} is not running on this machine",
        f"to see whether it has ended: muster status {FLAG.run} {run_dir.name}; on hosts: name them with {FLAG.hosts}",
    )


def logs_here(options: Options, console: Console) -> int:
    """Print the output of all ranks of a run on this machine, or of one of them; with --follow, until the run's end.

    Raises UsageError for --since, DeployError for a rank that the run does not have.
    """
    if options.since:
        raise UsageError(f"{FLAG.since} {options.since}: the logs of this machine have no times", "leave it out")
    rank, follow, pattern = "" if options.rank == "all" else options.rank, options.follow, options.grep
    refuse_no_rank(rank)
    _matching(pattern, b"")  # refuses a bad pattern before anything is read
    matched = False
    run_dir = record.find(options.run or "latest")
    is_over = partial(attach.is_over, run_dir, processes.drivers(run_dir))
    if follow and rank and not is_over() and not (run_dir / f"logs/rank-{rank}.log").exists():
        console.note(_missing(run_dir, rank) or _silence(run_dir, rank, False))
    try:
        nodes = not (rank or follow or any(run_dir.glob("logs/rank-*.log")))
        lines = _lines(run_dir, rank, is_over if follow else lambda: True, pattern)
        for number, line in _consoles(run_dir, pattern) if nodes else lines:
            matched = True
            if console.as_json:
                console.data({"node" if nodes else "rank": number, "line": line})
            else:
                console.line(f"[{number}]  {console_line(line)}")
            if console.gone:
                return STOPPED
    except KeyboardInterrupt:
        return DONE if follow else STOPPED
    if missing := _missing(run_dir, rank):
        raise DeployError(missing)
    if not matched:
        console.note(f"no line matches {pattern}" if pattern else _silence(run_dir, rank, is_over()))
    return DONE


def _missing(run_dir: Path, rank: str) -> str:
    """What to say about a rank that is not among those that have started; empty if it is, or if none has."""
    started = _ranks(run_dir)
    if not (rank and started) or int(rank) in started:
        return ""
    return f"{run_dir.name}: it has no rank {rank}, only {ranks_in_words(started)}"


def _silence(run_dir: Path, rank: str, over: bool) -> str:
    """What to say if nothing was printed."""
    who = f"rank {rank}" if rank else "its ranks"
    if not _ranks(run_dir):
        words = "none of its ranks started" if over else "its ranks have not started yet"
    else:
        words = f"{who} printed nothing" if over else f"{who} {'has' if rank else 'have'} printed nothing yet"
    return f"{run_dir.name}: {words}"


def _ranks(run_dir: Path) -> list[int]:
    """The ranks that have started: one that has printed nothing has no log, but has events."""
    return sorted({int(match[1]) for path in run_dir.glob("*/rank-*") if (match := _RANK_FILE.fullmatch(path.name))})


def _matching(pattern: str, lines: bytes) -> list[str]:
    """The lines that match the pattern, by grep -E as on hosts. Raises UsageError if grep refuses the pattern."""
    if pattern:
        words = ("env", "LC_ALL=C", "grep", "-aE", "-e", pattern)
        done = subprocess.run(words, input=lines, capture_output=True, check=False)
        if done.returncode > 1:
            raise UsageError(f"{FLAG.grep} {pattern}: {done.stderr.decode().strip()}", f"{FLAG.grep} 'nan|inf'")
        lines = done.stdout
    return lines.decode(errors="replace").removesuffix("\n").split("\n") if lines else []


def _consoles(run_dir: Path, pattern: str) -> Iterator[tuple[str, str]]:
    """The lines of the nodes' consoles, node by node. For a run on hosts, a follower keeps these consoles here."""
    for path in sorted(run_dir.glob("logs/*.log")):
        with suppress(OSError), own_files.open_to_read(run_dir, f"logs/{path.name}") as file:
            while piece := file.read(_PIECE // 2) + file.readline(_PIECE // 2):
                lines = (line for line in piece.split(b"\n") if not line.startswith(b"muster-said "))
                for text in _matching(pattern, b"\n".join(lines)):
                    yield path.stem, text


def _lines(run_dir: Path, rank: str, is_over: Callable[[], bool], pattern: str) -> Iterator[tuple[int, str]]:
    """The complete lines of the ranks' logs as they come, each with its rank. A very long line comes in parts.

    `pattern`: only the lines that match it.
    """
    ends = Counter[int]()
    while True:
        over = is_over()
        for number in [int(rank)] if rank else _ranks(run_dir):
            while new := _read(run_dir, number, ends[number]):
                is_part = over or len(new) == _PIECE
                if not (size := new.rfind(b"\n") + 1 or len(new) * is_part):
                    break
                ends[number] += size
                for line in _matching(pattern, new[:size]):
                    yield number, line
        if over:
            return
        time.sleep(_LOOK_EVERY_S)


def _read(run_dir: Path, rank: int, at: int) -> bytes:
    with suppress(OSError), own_files.open_to_read(run_dir, f"logs/rank-{rank}.log") as file:
        file.seek(at)
        return file.read(_PIECE)
    return b""
