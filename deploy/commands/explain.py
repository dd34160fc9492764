"""`muster explain FILE...|FOLDER|-|RUN|CAUSE`: find the cause in a failed run's output, or describe a cause."""

from __future__ import annotations

import os
import re
import shlex
import stat
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from ..causes.row import Row
from ..causes.table import DOCS, READ, ROWS
from ..causes.table import lines_of as lines_of_row
from ..core.budget import Budget
from ..core.errors import DONE, FAILED, DeployError, UsageError
from ..core.printable import visible
from ..core.suggest import near_match
from ..core.text import amount, listed, several
from ..explain import sources
from ..explain.cause import Explanation, judge
from ..explain.read import read
from ..explain.reading import Reading
from ..explain.signs.kinds import GPUS
from ..job.options import FLAG, Options
from ..job.script import as_given
from ..report.console import Console
from ..run.files import record, standing
from ..run.own_run import OwnRun, of_run
from . import where

SHOWN, _MOST_NAMED = 240, 20
_SILENT = ": its log shows no error and no end, and nothing later than the other logs"
_PLACEHOLDER = re.compile(r"\b(?:SCRIPT|JOB|HOST|PORT|FILE|FOLDER|PROGRAM|DEV|CONTAINER)\b")
_HOST_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,80}")
# Words in a suggested command, and how to find their values in the lines of the evidence.
_PLACES = {
    "JOB": re.compile(r"(?:JOB|STEP|StepId=|JobId=|job) ?(\d{1,12})\b"),
    "PORT": re.compile(r"\bport (\d{1,5})\b"),
    "HOST": re.compile(
        r"connect to host ([A-Za-z0-9][\w.-]{0,80}) port|hostname ([A-Za-z0-9][\w.-]{0,80}):|"
        r"@([A-Za-z0-9][\w.-]{0,80}): Perm"
    ),
}
_STDIN, _HINT = "-", "name files, a folder of logs, a run (`muster runs`), a cause, or - for standard input"


def tell(whats: Sequence[str], console: Console) -> int:
    """Explain files, folders, runs, standard input, or a cause. Raises UsageError if there is nothing to read."""
    if not whats:
        whats = (_STDIN if _is_piped() else "latest",)
        if whats == ("latest",):
            where.announced(record.find("latest"), Options(), console)
    if len(whats) == 1 and whats[0] in ROWS and not os.path.lexists(whats[0]):
        return tell_cause(ROWS[whats[0]], console)
    places, left_out = places_of(whats)
    files = {name: str(place) for name, place in zip(sources.names_of(places), places, strict=True) if place}
    budget = Budget()
    explanation = judge(readings_of(places, console, budget), left_out)
    folder = _folder_of(whats)
    if folder and (run := _own_run(folder, console)):
        of_logs = explanation
        explanation = _at_its_line(of_run(of_logs, run), files, budget)
        explanation = replace(explanation, unread=of_logs.unread, left_out=of_logs.left_out)
    script = _script_of(folder) if folder else ""
    console.data({"kind": "explanation", **explanation.json(), "next": next_of(explanation, script, files)})
    console.text("\n".join(lines_of(explanation, script, files)))
    return DONE if explanation.cause else FAILED


def tell_cause(row: Row, console: Console) -> int:
    """Print what the table of causes says about a cause, so that the user needs no web page for it."""
    console.data(
        {
            "kind": "cause",
            "cause": row.slug,
            "meaning": row.meaning,
            "by_hand": row.by_hand,
            "fix": row.fix,
            "others": list(row.others),
            "explains": row.explains.split(),
            "source": row.source,
            "group": row.ends,
            "docs": f"{DOCS}#{row.slug}",
        }
    )
    console.text("\n".join(lines_of_row(row)))
    return DONE


def places_of(whats: Sequence[str]) -> tuple[list[Path | None], list[str]]:
    """The files that the words mean, each once (None is standard input); and in words, what is left out of folders.

    Raises UsageError if there is no such file.
    """
    both = [_places(what) for what in whats]
    return list(dict.fromkeys(place for places, _ in both for place in places)), [left for _, left in both if left]


def readings_of(places: Sequence[Path | None], console: Console, budget: Budget) -> list[Reading]:
    """Read the streams one after another, within one budget for all of them.

    Raises UsageError if one cannot be opened, or if the only one cannot be read. If there are several, one that cannot
    be read is reported and left out.
    """
    names = sources.names_of(places)
    total = sum(place.stat().st_size for place in places if place)
    done = 0
    with console.waiting("reading") as say:

        def heard(size: int) -> None:
            say(f"{amount(done + size)} of {amount(total)}" if total else amount(size))

        readings, unreadable = list[Reading](), list[str]()
        for name, place in zip(names, places, strict=True):
            who = sources.speaker_of(name) if place else ""
            with closing(_opened(place)) as stream:
                pieces = _pieces(stream, str(place), budget, unreadable if places[1:] else None)
                readings.append(read(name, pieces, heard, who, budget))
            done += place.stat().st_size if place else 0
    if unreadable:
        console.warn(f"not readable, left out: {listed(unreadable, _MOST_NAMED)}")
    return readings


def lines_of(explanation: Explanation, script: str = "", files: Mapping[str, str] | None = None) -> list[str]:
    """The explanation as lines for people, with control characters of the logs made visible.

    `script`: the run's script and its arguments, if the run's record has them. `files`: the path of each named file.
    """
    whose = " (the script's own fault)" if explanation.script and explanation.cause != "script-error" else ""
    name = explanation.cause or ("none" if explanation.ended_well else "not known")
    lines = [f"cause     {name}: {visible(explanation.what)}{whose}"]
    if explanation.maybe:
        lines.append(f"or        {', '.join(explanation.maybe)}: the output would be the same")
    if explanation.first:
        lines.append(f"first     {visible(explanation.first)}")
    for line in explanation.evidence:
        who = f" ({line.who})" if line.who else ""
        lines.append(f"evidence  {visible(f'{line.node}:{line.number}{who}: {line.text[:SHOWN]}')}")
    for happening in explanation.story:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(happening.t))
        text, _, _ = happening.text.partition("\n")
        lines.append(f"timeline  {at} {visible(text[:SHOWN])}")
    if explanation.contradicted:
        lines.append(f"but       {visible(explanation.contradicted)}")
    if explanation.silent:
        more = len(explanation.silent) - _MOST_NAMED
        names = [*explanation.silent[:_MOST_NAMED], *([f"{more:,} more"] if more > 0 else [])]
        lines.append(f"silent    {visible(', '.join(names))}{_SILENT}")
    if explanation.victims:
        lines.append(f"left out  lines of ranks that lost a peer: {several(explanation.victims, 'line')}")
    lines += _unread(explanation, files or {})
    if explanation.hint:
        lines.append(f"hint      {visible(explanation.hint)}")
    then = next_of(explanation, script, files or {})
    if then:
        lines.append(f"next      {visible(then)}")
    if explanation.cause:
        lines.append(f"more      {READ} {explanation.cause}")
    return lines


def _unread(explanation: Explanation, files: Mapping[str, str]) -> list[str]:
    """Lines about what was not opened, or not read for lack of time, with a command that reads it."""
    many = "name some of them: muster explain FILE..."
    lines = [
        f"not read  {visible(left)}: a folder has more files than Muster reads; {many}" for left in explanation.left_out
    ]
    for node, (number, end) in list(explanation.unread.items())[:3]:
        parts = [several(number, "line")] * bool(number) + [f"all from line {end:,} on"] * bool(end)
        again = f"; its end: tail -c 10M {shlex.quote(files[node])} | muster explain -" if end and node in files else ""
        left = f"{node}: {' and '.join(parts)}: the time limit for this output is used up{again}"
        lines.append(f"not read  {visible(left)}")
    return lines


def next_of(explanation: Explanation, script: str, files: Mapping[str, str]) -> str:
    """A command to type next, with script, job and hosts if known; or one that shows the lines around the evidence."""
    text = " ".join(line.text for line in explanation.evidence)
    then = explanation.next
    if not script:
        then = re.sub(r"^(\w+=\S+(?: \w+=\S+)*) torchrun (?:\.\.\.|SCRIPT)$", r"export \1", then)
    line = explanation.evidence[0] if explanation.evidence else None
    path = files.get(line.node, "") if line else ""
    log = shlex.quote(path) if path and not path.endswith(".gz") else ""
    known = {"SCRIPT": script, "LOG": log}
    known |= {word: _first_of(pattern, text) for word, pattern in _PLACES.items()}
    for word, value in known.items():
        then = re.sub(rf"\b{word}\b", value.replace("\\", r"\\"), then) if value else then
    then = re.sub(r"\btorchrun(?: --nproc-per-node \d+)? python ", "python ", then)
    if explanation.hosts and all(_HOST_NAME.fullmatch(host) for host in explanation.hosts):
        then = then.replace("--hosts ...", f"--hosts {','.join(explanation.hosts)}")
    # `muster logs` needs the hosts of a run that Muster started: suggest the file that is here instead.
    of_rank = then.split()[:2] == ["muster", "logs"]
    untypable = _PLACEHOLDER.search(then) or of_rank or (not explanation.cause and "..." in then)
    if line and log and untypable:
        return f"sed -n '{max(1, line.number - 15)},{line.number + 15}p' {log}"
    if then.endswith(GPUS):
        return "nvidia-smi"
    # Suggest no command with unknown parts. `--hosts ...` may stay: the reader knows the hosts.
    return "" if {"SCRIPT", "LOG"} & set(then.split()) or of_rank or ("..." in then and not explanation.cause) else then


def _first_of(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return next((group for group in match.groups() if group), "") if match else ""


def _folder_of(whats: Sequence[str]) -> Path | None:
    """The folder of the run to explain; None if it is not a run in this folder."""
    with suppress(DeployError):
        if len(whats) == 1 and whats[0] != _STDIN and not os.path.isfile(whats[0]):
            return record.find(whats[0])
    return None


def _own_run(folder: Path, console: Console) -> OwnRun | None:
    """What a run's own folder says about it; None if Muster did not start it."""
    from ..local import attach

    if not (folder / "record.json").is_file():
        return None
    outcome = attach.record_end(folder, console)
    if not outcome and attach.is_running_here(folder):
        console.note(f"{folder.name} is still running; to see what its ranks do: muster why {FLAG.run} {folder.name}")
    elif not outcome and attach.is_local(folder) and standing.is_of_this_machine(folder):
        console.note(f"{folder.name}: {attach.UNKNOWN_END}")
    return OwnRun(folder.name, outcome, record.story_of(folder))


def _at_its_line(explanation: Explanation, files: Mapping[str, str], budget: Budget) -> Explanation:
    """If the evidence quotes the run's verdict, refer instead to the last log line with these words.

    If no log has such a line, the result has no evidence.
    """
    if not explanation.quoted:
        return explanation
    logs = [(name, Path(files[name])) for name in explanation.quoted if name in files]
    lines = []
    for line in explanation.evidence[:1]:
        places = ((name, sources.last_line_with(path, line.text, budget)) for name, path in logs)
        lines += [replace(line, node=name, number=number) for name, number in places if number][:1]
    return replace(explanation, evidence=tuple(lines))


def _script_of(folder: Path) -> str:
    """A run's script, with its arguments; empty if torchrun does not start it."""
    known = record.own_fields(folder)
    words = [str(word) for word in known.get("arguments", ())]
    if known.get("script") and words and (words[0] == "-m" or not words[0].startswith("-")):
        return shlex.join(as_given(words, known.get("bare") is True))
    return ""


def _places(what: str) -> tuple[Sequence[Path | None], str]:
    """The files that a word means (None is standard input), and what is left out."""
    if what == _STDIN:
        return [None], ""
    path = Path(os.path.expanduser(what))
    try:
        if not stat.S_ISDIR(path.stat().st_mode):
            return [path], ""
        folder = record.find(what)  # a run of this name goes before a folder of this name
        return _in_folder(path if folder == path.resolve() else folder, what)
    except PermissionError as fault:
        raise UsageError(f"{what}: cannot be read: {fault.strerror}", _HINT) from fault
    except OSError:  # no file has this name, or the name is not possible
        if what.count(" ") > 1:
            hint = "pass an error's text on standard input: echo '...' | muster explain -"
            raise UsageError(f"{what[:40]}: no such file", hint) from None
    if os.sep in what or path.suffix:
        raise UsageError(f"{what}: no such file", _HINT)
    try:
        folder = record.find(what)
    except UsageError as none:
        if what == "latest":
            raise UsageError(none.message, f"{none.hint}; or {_HINT}") from None
        cause = near_match(what, ROWS)
        hint = f"did you mean `muster explain {cause}`?" if cause else _HINT
        raise UsageError(f"{what}: no such file, folder, run or cause", hint) from None
    return _in_folder(folder, what)


def _in_folder(folder: Path, what: str) -> tuple[Sequence[Path], str]:
    try:
        files, left_out = sources.in_folder(folder)
    except PermissionError as fault:
        raise UsageError(f"{what}: cannot be read: {fault.strerror}", _HINT) from fault
    if record.is_starting(folder):
        raise UsageError(f"{folder.name} is starting: it has no logs yet", f"follow it: muster attach {folder.name}")
    if not files and not (folder / "outcome.json").is_file():  # outcome.json alone says how a run ended
        hint = "if the run is on hosts: muster fetch; else name a file with the output, or a folder of *.log files"
        raise UsageError(f"{what}: no logs in {folder}", hint)
    return files, left_out


def _is_piped() -> bool:
    """Whether standard input is a pipe, a socket or a file: a terminal, or a closed input, has no output to explain."""
    with suppress(OSError, ValueError):
        mode = os.fstat(sys.stdin.fileno()).st_mode
        return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)
    return False


def _opened(source: Path | None) -> BinaryIO:
    if source is None:
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    try:
        return source.open("rb")
    except OSError as fault:
        raise UsageError(f"{source}: cannot be read: {fault.strerror}", _HINT) from fault


def _pieces(stream: BinaryIO, name: str, budget: Budget, unreadable: list[str] | None) -> Iterator[bytes]:
    """The content of a stream. If it cannot be read, note it in `unreadable`, or raise UsageError if that is None."""
    try:
        yield from sources.pieces(stream, budget)
    except OSError as fault:
        words = f"{name}: cannot be read: {fault.strerror}"
        if unreadable is None:
            raise UsageError(words, _HINT) from fault
        unreadable.append(words)
