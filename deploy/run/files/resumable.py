"""Find the run that `--resume` or `--run` means in this machine's records; refuse an unknown id, suggest similar ones.

`latest` is the newest run of what the command starts: this script in this folder, or Muster's own trainer.
"""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ...core.errors import UsageError
from ...core.names import run_ids
from ...job import option_words
from ...job import script as typed
from ...job.options import FLAG
from ..environment import recipe_name, script_name
from . import folders, record
from .record import HOSTS, SLURM, Choice

# If script_name returns one of these, the command's words include no file, and all of its words identify the script.
_NOT_A_FILE = ("accelerate", "deepspeed", "bash", "sh", "the script")
_MOST_NAMED = 3


@dataclass(frozen=True)
class WantedRun:
    """What a command specifies in addition to the run that it resumes; an empty field is not specified.

    `script`: the parsed words of the script. `folder`: the script's folder. `arguments`: options of Muster's own
    trainer.
    """

    script: tuple[str, ...] = ()
    folder: str = ""
    arguments: tuple[str, ...] = ()

    def matches(self, run_dir: Path) -> bool:
        """Whether a run, as this user recorded it, is a run of what the command specifies."""
        known = record.own_fields(run_dir)
        if self.script:
            return _runs_script(known, self.script) and _from_folder(known, sent_from(self.folder, run_dir.parent))
        if self.arguments:
            names_recipe = any(word.partition("=")[0] == "--recipe" for word in self.arguments)
            same = not names_recipe or recipe_name(known.get("arguments", ())) == recipe_name(self.arguments)
            return same and not known.get("script")
        return not self.folder or not known.get("script") or _from_folder(known, sent_from(self.folder, run_dir.parent))

    def named(self) -> str:
        """What the command specifies, as part of a sentence; empty if it specifies nothing."""
        if self.script:
            return f" of {name_of(self.script)} in {Path(self.folder or '.').resolve()}"
        return " of Muster's own trainer" if self.arguments else ""


def sent_from(folder: str, runs: Path) -> str:
    """A script's folder for record.json, relative to the folder that `runs` is in: both may be moved together."""
    return os.path.relpath(os.path.realpath(os.path.expanduser(folder)), runs.parent.resolve())


def folder_of(run_dir: Path) -> str:
    """The folder of a recorded script, as the user could type it here; empty: the current folder, or not recorded."""
    if not (place := record.own_fields(run_dir).get("sent_from")):
        return ""
    folder = (run_dir.parent.parent / place).resolve()
    return "" if folder == Path.cwd().resolve() else os.path.relpath(folder)


def name_of(words: Sequence[str]) -> str:
    """The name that identifies the script of a parsed command: the file, the module, or all of the command's words."""
    name = script_name(words)
    return typed.as_typed(list(words)) if name in _NOT_A_FILE else os.path.normpath(name)


def command_of(run_dir: Path) -> str:
    """The recorded command of a script, as `--script` takes it."""
    known = record.own_fields(run_dir)
    return shlex.join(typed.as_given(known.get("arguments", ()), bool(known.get("bare"))))


def newest(backend: str, wanted: WantedRun) -> Path | None:
    """The run on that backend that was started last, among those that this user recorded and the command may mean."""
    return max(filter(wanted.matches, record.runs_on(backend)), key=record.started, default=None)


def described(run_dirs: Sequence[Path], flag: str = FLAG.resume) -> str:
    """The first few runs as options to type, each with its script."""
    scripts = {path.name: record.own_fields(path) for path in run_dirs[:_MOST_NAMED]}
    return ", ".join(
        f"{flag} {name}" + (f" ({name_of(known.get('arguments', ()))})" if known.get("script") else "")
        for name, known in scripts.items()
    )


def refuse_none(wanted: WantedRun, others: Collection[Path]) -> NoReturn:
    """Raise UsageError because `latest` matches no run; the user could resume the `others` by their ids."""
    scripts = sorted(
        (path for path in others if record.own_fields(path).get("script")), key=record.started, reverse=True
    )
    instead = f"; or continue with {described(scripts)}" if scripts else ""
    raise UsageError(
        f"{FLAG.resume} latest: no run{wanted.named()} that can be resumed is recorded in {folders.RUNS}",
        f"leave it out to start a new run{instead}",
    )


def refuse_unknown(wanted: str, elsewhere: Collection[str] = (), flag: str = FLAG.resume) -> NoReturn:
    """Raise UsageError for an id that no run has, here or on the hosts (`elsewhere`), and suggest similar ids."""
    here = sorted(record.run_dirs(folders.RUNS), key=record.started)
    known = {str(run): record.path_of(run) for run in run_ids(elsewhere)} | {path.name: path for path in here}
    begun = [name for name in known if name.startswith(wanted)]  # such as a date: suggest the newest runs of that day
    names = begun[::-1][:_MOST_NAMED] or difflib.get_close_matches(wanted, known, _MOST_NAMED, 0.6)
    near = [known[name] for name in names]
    meant = f"did you mean {described(near, flag)}? " if near else ""
    newest = f"the newest runs here: {described(here[::-1], flag)}; " if here and not near else ""
    listed = (
        f"`muster runs` lists the runs of this folder, `{option_words.command_of('runs', hosts='a,b')}` those on hosts"
    )
    raise UsageError(f"{flag} {wanted}: no such run", f"{meant}{newest}{listed}")


def refuse_elsewhere(run_dir: Path, here: str = "") -> None:
    """Raise UsageError if the run's files are not on the backend `here` (empty: on any backend of this machine)."""
    known = record.own_fields(run_dir)
    backend = known.get("backend")
    if backend is None or backend == here or not (here or backend in (HOSTS, SLURM)):
        return
    hosts = ",".join(known.get("hosts", ()))
    command = {
        HOSTS: option_words.command_of("deploy", hosts=hosts),
        SLURM: option_words.command_of("deploy", slurm=hosts),
    }.get(backend, "muster up")
    raise UsageError(
        f"{FLAG.resume} {run_dir.name}: its files are on {hosts if backend in (HOSTS, SLURM) else 'this machine'}",
        f"{command} {FLAG.resume} {run_dir.name}",
    )


def describe_other_script(run_dir: Path, words: Sequence[str], folder: str) -> str:
    """What differs if a run continues with another script, or with one from another folder; empty: nothing."""
    known = record.own_fields(run_dir)
    if not known.get("script") or not words:
        return ""
    before = name_of(known.get("arguments", ()))
    if not _runs_script(known, words):
        return f"{run_dir.name} ran {before}; {name_of(words)} continues in its files"
    if not _from_folder(known, sent_from(folder, run_dir.parent)):
        return (
            f"{run_dir.name} ran {before} of {folder_of(run_dir) or 'this folder'}; that of {folder or '.'} continues"
        )
    return ""


def refuse_other(run_dir: Path, words: Sequence[str], folder: str) -> None:
    """Raise UsageError if --run names a run of another script: the files of both would be mixed."""
    if other := describe_other_script(run_dir, words, folder):
        raise UsageError(
            f"{FLAG.run} {run_dir.name}: a run of this name exists already: {other.partition(';')[0]}",
            f"choose another name; or, to continue that run, use {FLAG.resume} {run_dir.name} instead of {FLAG.run}",
        )


def choose(resume: str, wanted: WantedRun, bare: bool = False) -> Choice:
    """What to run for RESUME on this machine: empty, `latest`, a run of this checkout, or the path of a checkpoint.

    A run of a script continues with what it wrote, and needs no checkpoint. `bare`: the user typed the script to run as
    one rank without torchrun's variables.
    """
    script, arguments, flag = wanted.script, wanted.arguments, f"{FLAG.resume} {resume}"
    if not resume:
        return Choice(None, script or arguments, script=bool(script), bare=bare)
    path = _newest_here(wanted) if resume == "latest" else Path(os.path.realpath(os.path.expanduser(resume)))
    if not os.path.isdir(path):
        if "/" not in resume:
            refuse_unknown(resume)
        raise UsageError(f"{flag}: no such folder", "`muster runs` lists the runs of this folder")
    if path.parent.resolve() != folders.RUNS.resolve():
        if script:
            what = f"{flag}: not a run of this folder; if you mean a checkpoint, {name_of(script)} loads its own"
            raise UsageError(what, "put the checkpoint's path after the script, as one of the script's own options")
        return Choice(None, (*arguments, "--resume", str(path)))
    record.refuse_newer(path)
    refuse_elsewhere(path)
    known = record.own_fields(path)
    if "arguments" not in known:
        again = f"give them yourself: muster up {FLAG.args} ... {FLAG.resume} {path / 'checkpoints'}"
        raise UsageError(
            f"{path}: this machine did not record its arguments, and Muster never runs what others recorded",
            again if record.has_checkpoint(path) else f"start its script yourself; what it wrote is in {path / 'work'}",
        )
    of_script, start = bool(known.get("script")), len(known.get("starts", ())) + 1
    if script and not of_script:
        raise UsageError(f"{path.name}: this run has no script", f"leave out {FLAG.script}")
    if not (of_script or record.has_checkpoint(path)):
        raise UsageError(f"{flag}: no checkpoint in that run yet", "`muster up` starts a new one")
    # A new option of the trainer overrides the recorded one.
    words = script or (*known["arguments"], *(() if of_script else arguments))
    bare = bare if script else bool(known.get("bare"))
    return Choice(path, words, known.get("workers"), start, of_script, bare and of_script)


def _newest_here(wanted: WantedRun) -> Path:
    """The newest run of this machine that the command may mean, and that has a script or a checkpoint."""
    here = [
        path for path in record.run_dirs(folders.RUNS) if record.backend_of(record.facts(path)) not in (HOSTS, SLURM)
    ]
    resumable = [path for path in here if record.own_fields(path).get("script") or record.has_checkpoint(path)]
    meant = [path for path in resumable if wanted.matches(path)]
    if not meant:
        refuse_none(wanted, resumable)
    return max([path for path in meant if "arguments" in record.own_fields(path)] or meant, key=record.started)


def _runs_script(known: Mapping[str, Any], script: Sequence[str]) -> bool:
    return bool(known.get("script")) and name_of(known.get("arguments", ())) == name_of(script)


def _from_folder(known: Mapping[str, Any], place: str) -> bool:
    """Whether a recorded script is from that folder. True for an older record, which does not have the folder."""
    return bool(known.get("sent_from", place) == place)
