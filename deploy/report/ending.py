"""The end of a run, now or shown again: write outcome.json and the page; show the result and the next command."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ..causes.end_causes import Cause
from ..core.errors import DeployError, UsageError
from ..explain import libraries
from ..explain.signs.table import shows
from ..job.again import command_of, read_again
from ..job.options import FLAG, ROWS, flag_of
from ..run.files import ends, record
from ..run.files.folders import display_path
from ..run.outcome import CODES, Result
from ..run.progress import State
from ..run.state.ranks import RankView
from ..send.folder import missed, named_paths
from ..send.folder.credentials import Choice
from ..send.image import official
from ..send.packages import requirements
from . import packages
from .console import Console
from .page import run as page

_HELPS = (
    "let only rank 0 read it, let the first rank of each host write it, or write it to a folder that all hosts mount: "
    f"{FLAG.mount} /shared:/shared"
)
_NO_FOLDER = "hosts share no folder during a run"
# Ends that a missing file may be the cause of, whatever the words say. The others have a cause of their own.
_OPEN = frozenset({"", Cause.EXCEPTION, Cause.KILLED, Cause.LEFT_EARLY, Cause.NOT_KNOWN})
# The run's own is free: agents look for such a port before they start ranks.
_OF_OWN_PORT = "if the script sets that port itself, let it use MASTER_PORT, which is free"
# What a script says that was written for another Python.
_OF_OTHER_PYTHON = re.compile(
    r"SyntaxError|cannot import name|has no attribute|not subscriptable|unsupported operand|No module"
)
_ALONE = "with `python` before its name, the script starts as you would start it by hand, without torchrun's variables"
# What argparse says of an option that stands behind the script, and the words that may be ours.
_REJECTED = re.compile(r"unrecognized arguments: (--?[A-Za-z-]+)")
_OURS = {flag for name, row in ROWS.items() for flag in (flag_of(name), f"-{row.letter}")}
# Logs as the nodes name them. A follower brings the nodes' logs here, and not the ranks'.
_LOGS = re.compile(r"(?<![\w./-])logs/(?:rank-(?P<rank>\d+)\.log has\b)?")
# What a script says that takes its path for several ranks. By hand it starts without the variables that lead there.
_OF_SEVERAL = re.compile(r"\bDDP\b|LOCAL_RANK|ProcessGroupNCCL is only supported with GPUs")

_DEVICE_IDS = re.compile(r"device_ids and output_device arguments only work")
_NO_DEVICE_IDS = (
    "on CPUs, DistributedDataParallel accepts no device_ids: leave them out if torch.cuda.is_available() is false"
)
# A pipe of multiprocessing that ends, and the traceback's line above it.
_PIPE_ENDS, _PIPE = (
    re.compile(r": (?:BrokenPipeError|EOFError|ConnectionResetError)\b"),
    "multiprocessing/connection.py",
)
_OF_CHILD = (
    "a process that the script started has ended: its own error comes before this one; when memory runs out, "
    "there is none"
)
# A script that asks for the size of its terminal, by Python or by a program.
_IOCTL, _STTY = "Inappropriate ioctl for device", "stty size"
_NO_TERMINAL = "a rank has no terminal: use shutil.get_terminal_size(), which then returns 80 columns and does not fail"
# What a shell says that does not find a program.
_PROGRAM = re.compile(r"(?m)(?:^|: )\s*([\w.+-]{1,80}): (?:command )?not found$")
_BRINGS = "add its package to the run's packages or to the image"
_ASSERTS = re.compile(r"\s(assert [^\n]{1,300})")


def end(
    run_dir: Path,
    result: Result,
    state: State,
    seconds: float,
    console: Console,
    fetch: str = "",
    sent: tuple[Path, Choice] | None = None,
    node_paths: Mapping[str, frozenset[str]] | None = None,
) -> int:
    """Write the end of the run into its folder and show it. `seconds` since its start; returns its exit code.

    `fetch` is the command that copies the run's files from its hosts; `sent`: the folder that was sent, and by which
    choice; `there`: by node, of the paths that the message names, those that its host has.
    """
    result = replace(result, hint=_LOGS.sub(lambda at: _log(run_dir, at["rank"], fetch), result.hint))
    if result.verdict == "failed":
        result = replace(result, hint=_hint(run_dir, result, state, fetch, sent, node_paths or {}) or result.hint)
    outcome = record.close(run_dir, result, state, seconds)
    try:
        page.write(run_dir)
    except DeployError as fault:  # how it ended is shown in any case
        console.warn(f"{fault.message}; {fault.hint}")
    console.result(result, state, outcome, display_path(run_dir / "report.html"), display_path(run_dir), fetch)
    return result.code


def _log(run_dir: Path, rank: str | None, fetch: str) -> str:
    """A rank's log by the command that shows it, a node's by its path from here."""
    logs = fetch.replace("fetch", "logs", 1) or command_of("logs", run=run_dir.name)
    return f"{logs} {FLAG.rank} {rank} shows" if rank else f"{display_path(run_dir)}/logs/"


def _hint(
    run_dir: Path,
    result: Result,
    state: State,
    fetch: str,
    sent: tuple[Path, Choice] | None,
    node_paths: Mapping[str, frozenset[str]],
) -> str:
    """What brings the file, the module or the variable that a failed rank missed."""
    words, run, open_end, facts = result.message, run_dir.name, result.cause in _OPEN, record.facts(run_dir)
    again: str = record.own(run_dir).get("again", "")
    if (rejected := _REJECTED.search(words)) and rejected[1] in _OURS:
        return _with(f"if {rejected[1]} is meant for Muster, put it before the script", result)
    if library := libraries.missing(words):
        return _with_library(library, facts.get("backend"), again)
    if other := known_elsewhere(words, run, result.node, node_paths, open_end):
        return _with(other, result)
    if sent is None:
        return ""
    folder, choice = sent
    lists = [name for name in requirements.DEFAULT_FILES if (folder / name).is_file()]
    named = read_again(again).requirements
    needs = named if named and (folder / named).is_file() else ""
    with suppress(UsageError):  # a pyproject.toml that is no TOML, say of a template
        needs = needs or requirements.find(folder, "", lists)[0]
    # On this machine the nodes share the run's folder.
    own = [path for path in named_paths.all_of(words, run) if os.path.lexists(run_dir / path)]
    if fetch:
        own = [*node_paths.get(result.node, ())]
    if how := missed.hint(words, folder, choice, needs, run, own):
        return how
    if open_end and _OF_OTHER_PYTHON.search(words):
        python = str(record.read_json(run_dir / "environment.json").get("python") or "")
        if re.fullmatch(r"3(?:\.[0-9]{1,3}){2}", python) and (other := packages.other_python(folder, python)):
            return other
    alone = len(facts.get("nodes", ())) == len(state.ranks.began) == 1 and not facts.get("bare")
    if open_end and alone and _OF_SEVERAL.search(words.partition("\n")[0]):
        return _with(_ALONE, result)
    if open_end and shows("port-busy", words):
        return _with(_OF_OWN_PORT, result)
    if result.cause == Cause.LEFT_EARLY and (program := _PROGRAM.search(words)):
        return _with(
            missed.not_installed(folder, needs, program[1]) or f"the run has no program {program[1]}: {_BRINGS}", result
        )
    if open_end and (how := _of_words(*words.partition("\n")[::2])):
        return _with(how, result)
    if fetch and open_end and shows("download", words):
        return _with(missed.of_download(folder, choice), result)
    return missed.of_hosts(words, again) if fetch else ""


def _of_words(error: str, traceback: str) -> str:
    """What an exception means that says too little by itself; empty for any other."""
    if _DEVICE_IDS.search(error):
        return _NO_DEVICE_IDS
    if _IOCTL in error or _STTY in traceback:
        return _NO_TERMINAL
    if _PIPE_ENDS.search(error) and _PIPE in traceback:
        return _OF_CHILD
    asserted = _ASSERTS.findall(traceback) if error.endswith(": AssertionError") else []
    return f"this assertion failed: {asserted[-1]}" if asserted else ""


def _with_library(library: str, backend: str | None, again: str) -> str:
    """What brings a library of the system to where the run was. `again`: the options of its deploy, as typed."""
    if not (own := libraries.package(library)):
        return f"to install {library}, as root on Debian or Ubuntu: {libraries.install(library)}"
    of_system = f"on Debian and Ubuntu, {library} is in the package {own}"
    if backend in ("processes", "docker", "slurm"):
        where = {"processes": "here", "docker": f"for {FLAG.backend} processes, here", "slurm": "on its nodes"}
        how = f"{where[backend]}: sudo {libraries.install(library).replace('&& ', '&& sudo ')}"
    else:
        given = read_again(again)
        run = f"RUN {libraries.install(library)}"
        if given.dockerfile:
            how = f"in {given.dockerfile}: {run}"
        else:
            image = given.image or f"pytorch/pytorch:{official.USUAL.tag}"
            how = f"printf 'FROM {image}\\nUSER root\\n{run}\\n' > Dockerfile; then: {FLAG.dockerfile} Dockerfile"
    return f"{of_system}; {how}"


def _with(hint: str, result: Result) -> str:
    """The hint, joined with that of the result: the next start copies to each host what it lacks, which helps some."""
    return "; ".join(filter(None, (hint, result.hint)))


def known_elsewhere(
    words: str, run: str, node: str, node_paths: Mapping[str, frozenset[str]], open_end: bool = True
) -> str:
    """What helps where another node has what these `words` of a rank of `node` miss; empty if none has it.

    `node_paths`: the paths of the words that each node has. If the node is unknown, one that lacks it is named.
    `open_end`: the run's end has no other cause, so that a path in the words may be what it misses.
    """
    for path in named_paths.all_of(words, run) if open_end else ():
        having = [name for name, paths in node_paths.items() if path in paths]
        lacking = [node] if node in node_paths else [name for name in node_paths if name not in having]
        if having and lacking and lacking[0] not in having:
            return f"{having[0]} has {_as_the_script_has(path)}, and {lacking[0]} does not: {_NO_FOLDER}; {_HELPS}"
    return ""


def _as_the_script_has(path: str) -> str:
    """A path as the script has it, seen from where it works."""
    of_home = path.startswith(named_paths.HOME)
    return f"~/{path.removeprefix(named_paths.HOME)}" if of_home else path.removeprefix(named_paths.WORK)


def show_again(run_dir: Path, console: Console, fetch: str) -> int:
    """Show an end that was written earlier, from its outcome.json; returns the run's exit code."""
    outcome, known = ends.end_of(run_dir), record.facts(run_dir)
    verdict, step = outcome.get("verdict"), outcome.get("step", 0)
    message, hint, node = (outcome.get(name, "") for name in ("message", "hint", "node"))
    result = Result(verdict if verdict in CODES else "failed", message, hint, node, outcome.get("rank"), step)
    files = outcome.get("kept", {})
    state = State(known.get("nodes") or tuple(files), script=known.get("script", False))
    rows = outcome.get("downloads", {}).items()
    stay = {node: {"downloads": size, "place": place} for node, (size, place) in rows}
    state.nodes.remains = {node: {**left, **stay.get(node, {})} for node, left in files.items()}
    values = {name: value for name, value in outcome.get("values", {}).items() if value is not None}
    state.training.evaluated = {"values": values, "samples": outcome.get("samples", 0)}
    if step:
        state.ranks.views[0] = RankView(0, "", step=step)
    unknown = dict.fromkeys(("rank", "accuracy", "samples", "samples_per_s"))
    shown = {**unknown, "seconds": 0.0, **outcome}
    console.result(result, state, shown, display_path(run_dir / "report.html"), display_path(run_dir), fetch)
    return result.code
