"""End a run: write outcome.json and the page, show the result and the next command; or show an earlier end again."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..causes.end_causes import Cause
from ..core.errors import DeployError, UsageError
from ..explain import libraries
from ..explain.signs.table import shows
from ..job.option_words import command_of, read_again
from ..job.options import FLAG, ROWS, flag_of
from ..run.files import record, recorded_ends
from ..run.files.folders import display_path
from ..run.outcome import CODES, Result
from ..run.progress import State
from ..send.folder import missed, named_paths
from ..send.folder.credentials import SendChoice
from ..send.image import official
from ..send.packages import requirements
from . import packages
from .console import Console, Value
from .page import run as page

# What an outcome.json may lack that ranks wrote.
_UNKNOWN_END: Value = {"message": "", "hint": "", "node": "", "step": 0, "seconds": 0.0}
_UNKNOWN_END |= dict.fromkeys(("rank", "accuracy", "samples", "samples_per_s"))
_WRITE_HINT = (
    "let only rank 0 read it, let the first rank of each host write it, or write it to a folder that all hosts mount: "
    f"{FLAG.mount} /shared:/shared"
)
_NOT_SHARED = "hosts share no folder during a run"
# The causes of an end that a missing file may explain. Any other cause explains the end by itself.
_OPEN_CAUSES = frozenset({"", Cause.EXCEPTION, Cause.KILLED, Cause.LEFT_EARLY, Cause.NOT_KNOWN})
# MASTER_PORT is free, because the agents look for a free port before they start ranks.
_OWN_PORT_HINT = "if the script sets that port itself, let it use MASTER_PORT, which is free"
# Errors of a script that was written for another version of Python.
_OTHER_PYTHON_ERRORS = re.compile(
    r"SyntaxError|cannot import name|has no attribute|not subscriptable|unsupported operand|No module"
)
_SINGLE_RANK_HINT = (
    "with `python` before its name, the script starts as you would start it by hand, without torchrun's variables"
)
# argparse's error about an option that was typed after the script, and the options that may be meant for Muster.
_REJECTED = re.compile(r"unrecognized arguments: (--?[A-Za-z-]+)")
_MUSTER_FLAGS = {flag for name, row in ROWS.items() for flag in (flag_of(name), f"-{row.letter}")}
# A path of a log in the run folder. A follower copies the nodes' logs to this machine, but not the ranks' logs.
_LOGS = re.compile(r"(?<![\w./-])logs/(?:rank-(?P<rank>[0-9]{1,6})\.log)?")
# Errors of a script that runs its code for several ranks. Without Muster it starts without the variables that lead
# there.
_SEVERAL_RANKS_ERRORS = re.compile(r"\bDDP\b|LOCAL_RANK|ProcessGroupNCCL is only supported with GPUs")

_DEVICE_IDS = re.compile(r"device_ids and output_device arguments only work")
_NO_DEVICE_IDS_HINT = (
    "on CPUs, DistributedDataParallel accepts no device_ids: leave them out if torch.cuda.is_available() is false"
)
# The errors when a multiprocessing pipe ends, and the file in the traceback above them.
_PIPE_ENDS, _PIPE = (
    re.compile(r": (?:BrokenPipeError|EOFError|ConnectionResetError)\b"),
    "multiprocessing/connection.py",
)
_CHILD_ENDED_HINT = (
    "a process that the script started has ended: its own error comes before this one; when memory runs out, "
    "there is none"
)
# The error of a script that asks for the size of its terminal, and the program that it may use for that.
_IOCTL, _STTY = "[Errno 25] Inappropriate ioctl for device", "stty size"
_NO_TERMINAL_HINT = (
    "a rank has no terminal: use shutil.get_terminal_size(), which then returns 80 columns and does not fail"
)
# The error of a file that belongs to a package, if it is started by its path.
_NO_PARENT = "attempted relative import with no known parent package"
_AS_MODULE_HINT = "this file belongs to a package: start it as a module, `-- -m PACKAGE.MODULE` instead of its path"
# What a shell prints when it cannot find a program.
_PROGRAM_NOT_FOUND = re.compile(r"(?m)(?:^|: )[ \t]*([\w.+-]{1,80}): (?:command )?not found$")
_PROGRAM_HINT = "add its package to the run's packages or to the image"
_ASSERTS = re.compile(r"\s(assert [^\n]{1,300})")


def write(
    run_dir: Path,
    result: Result,
    state: State,
    console: Console,
    fetch: str = "",
    sent: tuple[Path, SendChoice] | None = None,
    node_paths: Mapping[str, frozenset[str]] | None = None,
) -> dict[str, Any]:
    """Write the end of the run and its page into its folder; returns the outcome. Every record of an end is made here.

    A page that cannot be written gets a warning, not an error, because the end is shown in any case. `fetch`: the
    command that copies the run's files from its hosts. `sent`: the folder that was sent, and the choice of files.
    `node_paths`: for each node, which paths in the message its host has.
    """
    result = replace(result, hint=_with_logs(result.hint, run_dir, fetch))
    if result.verdict == "failed":
        result = replace(result, hint=_hint(run_dir, result, state, fetch, sent, node_paths or {}) or result.hint)
    # This command may look long after the ranks gave their verdicts. Without one, nobody knows when the run ended.
    now = time.time()
    ended = min(now, max((verdict["t"] for verdict in state.verdicts), default=now))
    # A record that another machine's follower made began later than the run.
    seconds = max(state.ranks.span.seconds, ended - (record.started(run_dir)[0] or ended))
    outcome = recorded_ends.close(run_dir, result, state, seconds)
    try:
        page.write(run_dir)
    except DeployError as fault:
        console.warn(f"{fault.message}; {fault.hint}")
    return outcome


def show(run_dir: Path, outcome: Value, console: Console, fetch: str = "") -> int:
    """Show how a run ended, from the fields of its recorded end; returns the run's exit code."""
    known = record.facts(run_dir)
    console.result(outcome, known, display_path(run_dir / "report.html"), display_path(run_dir), fetch)
    return CODES[outcome["verdict"]]


def show_stopped(run: str, end: Mapping[str, Any], console: Console, where: str = "", **more: Any) -> None:
    """Show how a run ended that a user asked to stop, from the fields of its `end`.

    `where`: words about the step that it reached. `more`: further fields for programs.
    """
    verdict, message = end.get("verdict"), end.get("message")
    console.note(f"{run}: {message or verdict}{where}")
    if hint := end.get("hint"):
        console.note(hint)
    console.data({"kind": "ended", "run": run, **more, "verdict": verdict, "message": message})


def _with_logs(hint: str, run_dir: Path, fetch: str) -> str:
    """The hint, with how to see the log that it names. What a host says is in quotation marks: it stays as it is."""
    if not fetch:
        return _LOGS.sub(lambda at: _log_words(run_dir, at["rank"], ""), hint)
    at = _LOGS.search(hint)
    if not at:
        return hint
    whose = f"the log of rank {at['rank']}" if at["rank"] else "the logs of the nodes"
    return f"{hint}; {whose}: {_log_words(run_dir, at['rank'], fetch)}"


def _log_words(run_dir: Path, rank: str | None, fetch: str) -> str:
    """How to see a log: for a rank, the command that shows it; for a node, the path of the logs on this machine."""
    logs = fetch.replace("fetch", "logs", 1) or command_of("logs", run=run_dir.name)
    return f"{logs} {FLAG.rank} {rank}" if rank else f"{display_path(run_dir)}/logs/"


def _hint(
    run_dir: Path,
    result: Result,
    state: State,
    fetch: str,
    sent: tuple[Path, SendChoice] | None,
    node_paths: Mapping[str, frozenset[str]],
) -> str:
    """The hint for a failed run: how to supply the file, module, library or variable that it lacked, or a fix."""
    words, run, open_end, facts = result.message, run_dir.name, result.cause in _OPEN_CAUSES, record.facts(run_dir)
    again: str = record.own_fields(run_dir).get("again", "")
    if (rejected := _REJECTED.search(words)) and rejected[1] in _MUSTER_FLAGS:
        return _join_hints(f"if {rejected[1]} is meant for Muster, put it before the script", result)
    if library := libraries.missing(words):
        return _library_hint(library, facts.get("backend"), again)
    if other := known_elsewhere(words, run, result.node, node_paths, open_end):
        return _join_hints(other, result)
    if sent is None:
        return ""
    folder, choice = sent
    lists = [name for name in requirements.DEFAULT_FILES if (folder / name).is_file()]
    named = read_again(again).requirements
    needs = named if named and (folder / named).is_file() else ""
    with suppress(UsageError):  # a pyproject.toml that is not TOML, such as that of a template
        needs = needs or requirements.find(folder, "", lists)[0]
    # On this machine the nodes share the run's folder.
    own = [path for path in named_paths.all_of(words, run) if os.path.lexists(run_dir / path)]
    if fetch:
        own = [*node_paths.get(result.node, ())]
    if how := missed.hint(words, folder, choice, needs, run, own):
        return how
    if open_end and _OTHER_PYTHON_ERRORS.search(words):
        python = str(record.read_json(run_dir / "environment.json").get("python") or "")
        if re.fullmatch(r"3(?:\.[0-9]{1,3}){2}", python) and (other := packages.other_python(folder, python)):
            return other
    alone = len(facts.get("nodes", ())) == len(state.ranks.began) == 1 and not facts.get("bare")
    if open_end and alone and _SEVERAL_RANKS_ERRORS.search(words.partition("\n")[0]):
        return _join_hints(_SINGLE_RANK_HINT, result)
    if open_end and shows("port-busy", words):
        return _join_hints(_OWN_PORT_HINT, result)
    if result.cause == Cause.LEFT_EARLY and (program := _PROGRAM_NOT_FOUND.search(words)):
        return _join_hints(
            missed.not_installed(folder, needs, program[1]) or f"the run has no program {program[1]}: {_PROGRAM_HINT}",
            result,
        )
    if open_end and (how := _exception_hint(*words.partition("\n")[::2])):
        return _join_hints(how, result)
    if fetch and open_end and shows("download", words):
        return _join_hints(missed.of_download(folder, choice), result)
    return missed.of_hosts(words, again) if fetch else ""


def _exception_hint(error: str, traceback: str) -> str:
    """The meaning of an exception that says too little by itself; empty for any other exception."""
    if _DEVICE_IDS.search(error):
        return _NO_DEVICE_IDS_HINT
    if _NO_PARENT in error:
        return _AS_MODULE_HINT
    if _IOCTL in error or _STTY in traceback:
        return _NO_TERMINAL_HINT
    if _PIPE_ENDS.search(error) and _PIPE in traceback:
        return _CHILD_ENDED_HINT
    asserted = _ASSERTS.findall(traceback) if error.endswith(": AssertionError") else []
    return f"this assertion failed: {asserted[-1]}" if asserted else ""


def _library_hint(library: str, backend: str | None, again: str) -> str:
    """How to install a system library where the run was. `again`: the options of its deploy, as typed."""
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


def _join_hints(hint: str, result: Result) -> str:
    """Join this hint with the result's own, which may help, too: the next start copies missing files to each host."""
    return "; ".join(filter(None, (hint, result.hint)))


def known_elsewhere(
    words: str, run: str, node: str, node_paths: Mapping[str, frozenset[str]], open_end: bool = True
) -> str:
    """The hint if another node has the path that the rank on `node` lacks, by its `words`; empty if none has it.

    `node_paths`: which of the paths in the words each node has. If `node` is unknown, the hint is about a node that
    lacks the path. `open_end`: the run's end has no other cause, so it may lack a path in the words.
    """
    for path in named_paths.all_of(words, run) if open_end else ():
        having = [name for name, paths in node_paths.items() if path in paths]
        lacking = [node] if node in node_paths else [name for name in node_paths if name not in having]
        if having and lacking and lacking[0] not in having:
            return f"{having[0]} has {_path_for_script(path)}, and {lacking[0]} does not: {_NOT_SHARED}; {_WRITE_HINT}"
    return ""


def _path_for_script(path: str) -> str:
    """A path as the script would write it: relative to its working folder, or below its home."""
    of_home = path.startswith(named_paths.HOME)
    return f"~/{path.removeprefix(named_paths.HOME)}" if of_home else path.removeprefix(named_paths.WORK)


def show_again(run_dir: Path, console: Console, fetch: str) -> int:
    """Show the end that is recorded in outcome.json; returns the run's exit code."""
    end = recorded_ends.end_of(run_dir)
    verdict = end.get("verdict")  # a newer Muster may know other verdicts
    known = {**_UNKNOWN_END, **end, "verdict": verdict if verdict in CODES else "failed"}
    return show(run_dir, known, console, fetch)
