"""The readers of a project and of hosts' answers about it, as commands call them. Each gets a folder and a Random."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.core.errors import DeployError
from deploy.core.fields import array
from deploy.host import gpus
from deploy.job import script as scripts
from deploy.job import wishes
from deploy.job.cluster import from_file
from deploy.job.secrets import names_of_shell, read_env_file
from deploy.send.folder import git_files, repository, selection
from deploy.send.packages import base, install, resolve
from deploy.send.packages import requirements as needs
from deploy.send.packages.exchange import Exchange
from deploy.send.packages.from_source import git, sources
from deploy.send.packages.inside import wheel as wheels
from deploy.send.packages.inside.tools import Stop
from deploy.send.packages.requirements import Requirements
from deploy.send.packages.settings import Settings
from tests.hostile.fuzz import crafted_projects
from trainer.node.queue import claims

_BASE = base.Base("3.11.7", "x86_64", ("glibc", "2.36"), (base.Package("torch", "2.5.1+cpu"),))


def remade(folder, chance):
    """A wheel that a build left, as a host rebuilds it."""
    try:
        wheels.remake(folder / crafted_projects.WHEEL, folder / "out")
    except Stop as fault:
        raise DeployError(fault.words) from fault


def fetched(folder, chance):
    """A git source after its fetch: which files it has, and what it declares about itself."""
    with TemporaryDirectory() as place:
        git_files.make(Path(place))
        commit = (folder / "commit").read_text()
        try:
            content = git._read(git_files.Objects(Path(place), folder / "objects"), commit, "git+https://h/x")
        except (OSError, git.subprocess.SubprocessError) as fault:  # as git.fetch does
            raise DeployError(str(fault)) from fault
        sources.of_git({"git+https://h/x": content})


def needed(folder, chance):
    """The file that declares what a project needs, and all files that it refers to."""
    sent = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    path = "uv.lock" if "uv.lock" in sent else "pyproject.toml" if "pyproject.toml" in sent else "requirements.txt"
    needs.find(folder, "", sent)
    found = needs.read(folder, path, sent)
    found.key(*found.indexes, *map(str, found.wishes(())))
    sources.of_folder(found, folder)
    texts = [content.decode(errors="replace") for _, content in found.files]
    resolve.pins_of(texts)
    for text in texts:
        sources.with_stubs(text, "", {"p": Path("/x")}, {"git+https://h/x": Path("/y")})


def selected(folder, chance):
    """Which files of a folder are sent."""
    selection.select(folder)
    repository.look(folder)


def set_up(folder, chance):
    """A cluster.toml and a .env file."""
    with suppress(DeployError):
        cluster = from_file(folder / "cluster.toml")
        wishes.wishes(cluster.hosts, cluster.job, folder / "cluster.toml")
    read_env_file(folder / ".env")
    names_of_shell(folder / ".env")


def started(folder, chance):
    """A script and its command."""
    scripts.read((folder / "command").read_text(), folder)


def claimed(folder, chance):
    """A host's GPUs and claims, as this machine reads them and as a node on that host sees them."""
    about = {"number": 1, "token": "1", "run": "r1", "user": "a", "gpus": [], "whole": False, "state": claims.RESTS}
    own = claims.Claims(json.dumps(about), folder / "claims/run-1-1", folder / "claims")
    own.write(state=claims.WAITS)
    others = own.others()
    claims.choose("auto", {"GPU-1": 0}, own.own, others)
    json.dumps([each.shown for each in others]).encode()
    gpus.parse((folder / "answer").read_text(errors="replace").splitlines())


def told(folder, chance):
    """What the packages program answers on a host."""
    exchange = Exchange("a", Settings({}), lambda words: None)
    with (folder / "answer").open(errors="replace") as lines:
        for line in lines:
            exchange.line(line)
    answer = exchange.finish((0, ""), "describe", lambda words: "")
    if "base" in answer:
        known = base.read(answer, "a: its base")
        base.same({"a": known, "b": known})
    elif "built" in answer:
        array(install._BUILT, 1000)(answer["built"], "a: its builds")
    else:
        install._INSTALLED(answer, "a: its packages")


class _Index:
    """Replaces uv: reads uv's answers from a folder."""

    python, settings = Path("/nonexistent"), Settings({})

    def __init__(self, folder):
        self._folder = folder

    def run(self, words, folder, shown=True):
        out = Path(words[words.index("--output-file") + 1])
        out.write_bytes((self._folder / ("pylock.toml" if out.suffix == ".toml" else "lock.txt")).read_bytes())


def resolved(folder, chance):
    """What uv wrote about an index."""
    files = (("requirements.txt", b"a0==1.0\na1\n"),)
    asked_for = resolve.Question(Requirements("requirements.txt", "file", files), _BASE, (), {}, {}, lambda wanted: [])
    (folder / "scratch").mkdir()
    resolving = resolve.Resolving(asked_for, _Index(folder), folder / "scratch")
    (folder / "scratch/overrides.txt").write_text("")
    lines = resolving._compiled(folder / "lock.txt")
    resolving._chosen(lines, (), ())
