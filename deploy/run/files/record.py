"""The run folder runs/<id>/: make it, find it, list it. contract.md has its formats."""

from __future__ import annotations

import json
import os
import platform
import shutil
import stat
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core import formats, provenance
from ...core.errors import DeployError, UsageError
from ...core.fields import (
    MOST_DOCUMENT,
    array,
    flag,
    object_or_empty,
    optional,
    real,
    table,
    text,
    tree,
    whole,
)
from ...core.fields import record as shaped
from ...core.names import NodeName, RunId, check_typed, node_name, node_of, run_id, run_ids
from ...job.options import FLAG
from ..environment import IMAGE_USER, recipe_name, script_name
from ..state.story import Happening
from . import folders, locks, own_files, timeline

_TEXTS = array(text(), 10_000)
_FACTS = shaped(
    {},
    {
        "format": optional(whole(1_000_000)),
        "id": optional(text()),
        "started": optional(real(1e11)),
        "backend": optional(text(20)),
        "why": optional(text()),
        "nodes": optional(array(node_name, 10_000)),
        "workers": optional(whole(10_000)),
        "arguments": optional(_TEXTS),
        "starts": optional(array(shaped({}, {"t": real(1e11), "story": optional(whole())}, others=tree()), 10_000)),
        "hosts": optional(_TEXTS),
        "script": optional(flag),
        "again": optional(text(1 << 16)),
        "foreign": optional(array(text(20), 10)),
        "user": optional(text(64)),
        "cluster": optional(text()),
        "folder": optional(text(64)),
        "data": optional(table(text(4096), text(64))),
        "sources": optional(table(text(300), table(text(300), whole(1 << 60)), 10_000)),
        "wait_lost_s": optional(real(1e10)),
        "least": optional(whole(10_000)),
        "job": optional(text(20, r"[0-9]*")),
        "shared": optional(text(4096, r"/[^\x00-\x1f\x7f]*")),
        "sent_from": optional(text(4096)),
        "roles": optional(_TEXTS),
        "role_of": optional(table(text(300), text(40), 10_000)),
        "bare": optional(flag),
        "machine": optional(node_name),
        "gpus": optional(table(text(300), array(whole(10_000)), 10_000)),
    },
)
# Muster's files of which every run folder has at least one, no matter who made it and how early the run ended.
_RUN_FILES = ("record.json", "outcome.json", "nodes", ".fetched.json", ".lock")
# The names in a record for the backend of real hosts and that of a Slurm cluster.
HOSTS, SLURM = "hosts", "slurm"
# Only the owner may enter a run folder, with its checkpoints, logs and arguments, or the folder of all runs. An engine
# mounts the run's own folder into its container, so no other user has to pass through the folder of all runs.
OWNERS = 0o700
# The mode of a folder of runs in which a plain `docker compose up` lets its containers make their run folders; and the
# .gitignore in a folder of runs that Muster made.
_OPENED_BY_COMPOSE, _IGNORED = 0o1777, "# Muster's runs\n*\n"


@dataclass(frozen=True)
class Choice:
    """What to run: with `run_dir`, resume in that folder; without it, `arguments` start a new run.

    `script`: the arguments are a user's script and its arguments, not those of Muster's own trainer. `bare`: the user
    typed the script to run as one rank without torchrun's variables.
    """

    run_dir: Path | None
    arguments: tuple[str, ...]
    workers: int | None = None
    start: int = 1
    script: bool = False
    bare: bool = False


def make_runs(runs: Path) -> None:
    """Make this machine's folder of runs, which git ignores and no other user may enter.

    Raises as folders.ask_link does, and DeployError if the folder cannot be made.
    """
    folders.ask_link(runs)
    if _made(runs):
        with suppress(OSError):
            (runs / ".gitignore").write_text(_IGNORED)
    else:
        _close(runs)


def _made(folder: Path) -> bool:
    """Make a folder; false if its name is taken. Raises DeployError."""
    try:
        folder.mkdir(OWNERS)
    except FileExistsError:
        return False
    except OSError as fault:
        raise DeployError(f"{folder}: cannot be made: {fault.strerror}", f"ls -ld {folder.parent}") from fault
    return True


def _close(runs: Path) -> None:
    """Close this user's folder of runs to other users, unless it is a link: its target may have other uses, too."""
    about = runs.lstat()
    if stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and about.st_mode & 0o7777 != _OPENED_BY_COMPOSE:
        with suppress(OSError):  # on a disk that accepts no writes, making the run's own folder reports it
            runs.chmod(OWNERS)


def make_folder(runs: Path, arguments: Sequence[str], now: float, taken: Collection[str] = (), mark: str = "") -> Path:
    """Make a new run folder, `<minute>-<recipe>`; if two commands start together, mkdir decides which gets the name.

    `taken` are ids to avoid: on one engine, runs of another checkout may have the same name. `mark` is appended, so
    that a command on another machine cannot choose the same name at the same moment.
    """
    make_runs(runs)
    name = f"{time.strftime('%Y-%m-%d-%H%M', time.localtime(now))}-{recipe_name(arguments)}{f'-{mark}' * bool(mark)}"
    for attempt in range(1, 1000):
        folder = runs / (name if attempt == 1 else f"{name}-{attempt}")
        if folder.name not in taken and _made(folder):
            return folder
    raise DeployError(f"{runs}: there are a thousand runs named {name}")


def new_folder(name: str, words: Sequence[str], script: bool, taken: Collection[str] = (), mark: str = "") -> Path:
    """Make the folder of a new run: with this name, or else one from `make_folder`, named after what `words` start.

    Raises UsageError if the name is taken.
    """
    if not name:
        named = ("--recipe", script_name(words)) if script else words
        return make_folder(folders.RUNS, named, time.time(), taken, mark)
    folder = path_of(RunId(name))
    make_runs(folder.parent)
    if name in taken or not _made(folder):
        raise UsageError(f"--run {name}: a run of this name exists already", "choose another name")
    return folder


def open_start(
    run_dir: Path,
    choice: Choice,
    backend: str,
    why: str,
    names: Collection[str],
    now: float,
    fields: Mapping[str, Any] | None = None,
    is_latest: bool = True,
) -> dict[str, bytes]:
    """Write this start into record.json, and remove what the last start wrote about its nodes.

    `fields`: what the backend adds to the record; `is_latest`: make `latest` mean this run.
    Returns the files that `undo_start` needs to restore the folder.
    """
    earlier = {}
    for path in (path for pattern in ("", "nodes/", "outcome/") for path in run_dir.glob(f"{pattern}*.json")):
        with suppress(OSError):  # skip links and pipes: none of Muster's files is one
            earlier[str(path.relative_to(run_dir))] = own_files.read(path)
    with suppress(PermissionError):  # after an earlier start as root, the folder belongs to the image's user
        run_dir.chmod(OWNERS)
    before = facts(run_dir)
    both = {"backend": backend, "nodes": list(names), "arguments": list(choice.arguments)}
    start = {"t": now, "story": timeline.size(run_dir), **both}
    record = {
        "id": run_dir.name,
        "started": before.get("started", now),
        **both,
        "why": why,
        "workers": len(names) - 1,
        "script": choice.script,
        "bare": choice.bare,
        "user": folders.user_name(),
        "machine": this_machine(),
        "starts": [*before.get("starts", []), start],
        **({} if fields is None else fields),
    }
    try:
        write_record(run_dir, record)  # this comes first, so that a full disk changes nothing
        for folder, stale in (("nodes", ".json"), ("outcome", ".json"), ("ranks", ""), ("logs", "")):
            own_files.clear(run_dir, folder, stale)
        (run_dir / "outcome.json").unlink(missing_ok=True)
        if is_latest:
            point_latest(run_dir)
    except BaseException as fault:
        with suppress(OSError):
            if earlier:  # what is known about an earlier start stays
                undo_start(run_dir, earlier)
        if not isinstance(fault, OSError):
            raise
        what = f"{run_dir}: cannot replace {fault.filename or 'record.json'}: {fault.strerror}"
        raise DeployError(what, f"look at it: ls -l {run_dir}") from fault
    return earlier


def undo_start(run_dir: Path, earlier: dict[str, bytes]) -> None:
    """Undo a start that failed before any rank began: remove a new folder, restore the files of a resumed one."""
    if earlier:
        for name, content in earlier.items():
            own_files.write(run_dir, name, content)
        return
    shutil.rmtree(run_dir)
    if not point_to_newest(run_dir.parent):
        with suppress(OSError):  # rmdir fails if the folder holds other files
            ignore = run_dir.parent / ".gitignore"
            if [*run_dir.parent.iterdir()] == [ignore] and own_files.read(ignore) == _IGNORED.encode():
                ignore.unlink()
            run_dir.parent.rmdir()


def point_to_newest(runs: Path) -> bool:
    """Make runs/latest point to the newest run that is left; false if no run is left."""
    if left := run_dirs(runs):
        point_latest(max(left, key=started))
    else:
        (runs / "latest").unlink(missing_ok=True)
    return bool(left)


def give_to_image_user(run_dir: Path) -> None:
    """Give a folder that root made to the image's user, who could not write into it otherwise."""
    if os.geteuid() == 0:
        for path in (run_dir, *run_dir.rglob("*")):
            os.chown(path, IMAGE_USER, IMAGE_USER, follow_symlinks=False)


def story_of(run_dir: Path) -> list[Happening]:
    """The story of the last start, from timeline.read. An older record does not have the place where it begins."""
    start = (facts(run_dir).get("starts") or [{}])[-1]
    return timeline.read(run_dir, start.get("story") or 0)


def find(name: str) -> Path:
    """The run folder for `latest`, an id or a path: a name with a slash, or of a folder if no run here has that id.

    Raises UsageError if there is no such run.
    """
    path = Path(os.path.expanduser(name))
    known, is_id = os.path.isdir(path), any(is_run(path_of(run)) for run in run_ids([name]))
    if name == "latest":
        path = latest()
        if not (known := is_run(path)):
            folders.refuse_no_run()
    elif name and "/" not in name and (is_id or not known):
        path = folders.RUNS / check_typed("RUN", name, run_id)
        known = is_run(path)
    if name and known:
        refuse_newer(path)
        return path.resolve()
    raise UsageError(f"{FLAG.run} {name}: no such run", "`muster runs` lists them")


def path_of(run: RunId) -> Path:
    """Where a run with this id is, or would be, on this machine, on any backend."""
    return folders.RUNS / run


def latest() -> Path:
    """The run here that was begun last: one that is starting, or else the latest that started. Else a path of no run.

    Without the link to the latest (as in a copy), the times in the records count.
    """
    link, here = folders.RUNS / "latest", run_dirs(folders.RUNS)
    usual = link.resolve() if is_run(link) else max(here, key=started, default=link)
    return max(filter(is_starting, here), default=usual)


def is_starting(run_dir: Path) -> bool:
    """Whether a command has made this folder for a new run, and has not started its nodes yet: it has no record then.

    That can take minutes, for example while packages are installed.
    """
    return not os.path.lexists(run_dir / "record.json") and locks.is_held(run_dir / ".lock")


def run_dirs(runs: Path) -> list[Path]:
    """The runs in a folder. Links, and names that no run can have, are left out.

    Other programs, such as TensorBoard, use a folder `runs`, too; their folders have none of Muster's files in them.
    Raises DeployError if this user may not read the folder.
    """
    if os.path.isdir(runs) and not os.access(runs, os.R_OK | os.X_OK):
        raise DeployError(f"{runs}: you may not read this folder", f"ls -ld {runs}")
    folders = (path for path in runs.glob("*") if run_ids([path.name]) and os.path.isdir(path))
    return [
        each for each in folders if not each.is_symlink() and any(os.path.exists(each / name) for name in _RUN_FILES)
    ]


def is_run(path: Path) -> bool:
    """Whether a path is a run. A link to a folder elsewhere, which may have come with a folder of runs, is not."""
    return os.path.isdir(path) and path.resolve().parent == path.parent.resolve()


def folder_of(run: RunId) -> Path:
    """The local folder for a run on real hosts, which may not exist yet. All paths from a host's answer come from here.

    Raises DeployError if a run of this machine, or another file, has that name, because a host must not write there;
    UsageError if a newer Muster wrote the folder.
    """
    folder = path_of(run)
    refuse_newer(folder)
    backend = backend_of(read_json(folder / "record.json")) or HOSTS
    if backend != HOSTS or folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise DeployError(
            f"{folder}: this folder has the name of a run on the hosts, but belongs to another run",
            f"move it aside: mv {folder} {folder}-here",
        )
    return folder


def refuse_newer(run_dir: Path) -> None:
    """Raise UsageError if a newer Muster wrote the run folder."""
    formats.refuse_newer(str(run_dir), facts(run_dir).get("format"), formats.RUN_FOLDER)


def newest(backend: str) -> Path | None:
    """The run that was started last on that backend, among those that this user recorded."""
    return max(runs_on(backend), key=started, default=None)


def without_end(backend: str) -> list[Path]:
    """The runs on that backend whose end is not recorded here, newest first."""
    return sorted(
        (path for path in runs_on(backend) if not (path / "outcome.json").exists()), key=started, reverse=True
    )


def runs_on(backend: str) -> list[Path]:
    """The runs on that backend, among those that this user recorded."""
    return [path for path in run_dirs(folders.RUNS) if own_fields(path).get("backend") == backend]


def has_checkpoint(run_dir: Path) -> bool:
    """Whether the run has a checkpoint (the trainer checks whether it is intact)."""
    return any(run_dir.glob("checkpoints/step-*/manifest.json"))


def point_latest(run_dir: Path) -> None:
    """Make runs/latest point to this run; a reader always sees either the old or the new link.

    Raises DeployError if a folder is called `latest`.
    """
    link, aside = run_dir.parent / "latest", run_dir.parent / f".latest.{os.getpid()}"
    if link.is_dir() and not link.is_symlink():
        raise DeployError(f"{link}: the link to the newest run would replace it", f"mv {link} {link}-here")
    aside.unlink(missing_ok=True)
    aside.symlink_to(run_dir.name)
    aside.replace(link)


def write_json(path: Path, value: Any) -> None:
    """Replace the whole file at `path`."""
    own_files.write(path.parent, path.name, f"{json.dumps(value, indent=2)}\n".encode())


def read_json(path: Path) -> dict[str, Any]:
    """The document at `path`; {} if it is missing or is not a JSON object."""
    with suppress(OSError):
        return object_or_empty(own_files.read(path, MOST_DOCUMENT).decode(errors="replace"))
    return {}


def backend_of(record: Mapping[str, Any]) -> Any:
    """The backend in a record, or None. Format 1 calls the field `ground`."""
    return record.get("backend", record.get("ground"))


def facts(run_dir: Path) -> dict[str, Any]:
    """The readable fields of record.json. A container of a local run may have written them."""
    record = read_json(run_dir / "record.json")
    fields = _FACTS({**record, "backend": backend_of(record)}, "")
    return {name: value for name, value in fields.items() if value is not None}


def write_record(run_dir: Path, value: dict[str, Any]) -> None:
    """Replace and seal record.json. `foreign` in it lists the fields from other machines, which are never run."""
    write_json(run_dir / "record.json", provenance.sealed({**value, "format": formats.RUN_FOLDER}))


def own_fields(run_dir: Path) -> dict[str, Any]:
    """The fields of record.json that this machine's user wrote: only these may be run, or used in a command.

    Empty if somebody else wrote or changed the file: a container, a host, another machine.
    """
    stored = read_json(run_dir / "record.json")
    if not provenance.is_ours(stored) or stored.get("id") != run_dir.name:
        return {}
    known = facts(run_dir)
    return {name: value for name, value in known.items() if name not in (*known.get("foreign", ()), "foreign")}


def this_machine() -> NodeName:
    """This machine's name in records, without its domain: a laptop has another one in each network."""
    name, dot, domain = platform.node().lower().partition(".")
    return node_of(f"{name}{dot}{domain}" if name.isdigit() else name)


def started(run_dir: Path) -> tuple[float, str]:
    """A key to sort runs: when the run was started last (0: not recorded), and its id."""
    starts = facts(run_dir).get("starts") or [{}]
    return starts[-1].get("t", 0.0), run_dir.name


def contents(folder: Path) -> tuple[int, int]:
    """How many files are below a folder, and how many bytes they have. A link counts as itself, not as its target."""
    sizes = []
    for path in folder.rglob("*"):
        with suppress(OSError):  # a running run removes its old checkpoints, and a script closes folders
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode):
                sizes.append(status.st_size)
    return len(sizes), sum(sizes)
