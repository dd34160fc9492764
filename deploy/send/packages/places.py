"""The places where packages are installed: a Docker engine with a volume per content, or this machine with a folder."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ...causes import docker_faults
from ...core.errors import DeployError
from ...core.fields import array, default, json_object, record, text
from ...core.results import Results
from ...core.text import last_line
from ...door.session import Session, on_each
from ..image.model import DIGEST
from . import commands
from .exchange import Exchange, Files
from .local_runner import LocalRunner

_LISTED = record(
    {}, {"layers": array(DIGEST), "environment": default(array(text(1 << 16), 10_000), []), "volume": text(300)}
)
_DESCRIBE = (
    "import importlib.metadata as m, json, sys; "
    "print(json.dumps([sys.version, sorted({f\"{d.metadata['Name']}=={d.version}\" for d in m.distributions()})]))"
)
_LOOK_S, _DESCRIBE_S = 60.0, 300.0
HERE = "this machine"


class Has(NamedTuple):
    """What a place has: facts that distinguish its base, the base's variables, and its complete environments.

    lacks_uv: it has no uv yet, and its Python cannot get one.
    """

    base: tuple[str, ...]
    variables: Mapping[str, str]
    environments: frozenset[str]
    lacks_uv: bool = False


@dataclass
class DockerPlace:
    """A Docker engine; `runner` runs commands on its machine. `owner`: the uid and gid of the run's processes.

    `limits`, `mounts`: options of docker run. `where`: the login and address of its host. `bare`: its containers are
    processes of the login, without an engine (engine/bare).
    """

    name: str
    runner: Session | LocalRunner
    image: str
    user: str
    owner: tuple[int, int]
    limits: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    where: str = ""
    bare: bool = False
    _base: str = ""

    @property
    def who(self) -> str:
        """The host's name and address, and the run's user there."""
        return json.dumps([self.name, self.where, self.user, self.owner])

    def look(self) -> Has:
        """The image's layers below the code, the image's variables, and Muster's complete volumes."""
        done = self.runner.run(commands.list_packages(self.image, self.user), check=False)
        if done.code:
            raise docker_faults.fault(done.err)
        lines = [line for line in done.out.splitlines() if line.startswith("{")]
        rows = [_LISTED(json_object(line, "its packages"), "its packages") for line in lines]
        shown: dict[str, Any] = next((row for row in rows if "layers" in row), {"layers": [], "environment": []})
        variables = dict(line.partition("=")[::2] for line in shown.get("environment") or ())
        layers = tuple(shown["layers"])
        # A login owns everything that it keeps there, so it needs only one cache and one uv.
        self._base = "bare" if self.bare else commands.base(layers, variables)
        environments = frozenset(row["volume"] for row in rows if "volume" in row)
        return Has(layers, variables, environments, self.bare and not environments)

    def environment(self, digest: str) -> str:
        """The volume's name."""
        return f"muster-packages-{self.owner[0]}-{digest}"

    def box(self, scratch: str = "") -> commands.Box:
        """The box in which orders are carried out."""
        uid = self.owner[0]
        return commands.Box(self.image, self.user, uid, self._base, scratch, self.limits, self.mounts)

    def run(
        self, exchange: Exchange, order: Mapping[str, Any], files: Files, digest: str, scratch: str
    ) -> tuple[int, str]:
        """Let the program carry out an order in a container of the image; return its exit code and its other output.

        digest: of the environment that an install makes. scratch: a name for what builds pass on to the install.
        """
        box, mode = self.box(scratch), order["mode"]
        if mode == "install":
            argv = commands.install(box, self.environment(digest), digest, secrets.token_hex(16))
        else:
            argv = commands.build(box) if mode == "build" else commands.describe(box)
        where = {**order, **commands.PLACES, "owner": self.owner}
        try:
            source = exchange.input(where, files)
            patience = _DESCRIBE_S if mode == "describe" else None
            done = self.runner.run(argv, input=source, timeout_s=patience, check=False, on_line=exchange.line)
        finally:
            exchange.close()
        return done.code, done.err or done.out

    def forget(self, scratch: str) -> None:
        """Remove the volume with built wheels."""
        self.runner.run(commands.forget(self.box(scratch)), check=False)

    def remove(self, digest: str) -> None:
        """Remove the volume."""
        self.runner.run(("docker", "volume", "rm", "--force", self.environment(digest)), check=False)

    def machine(self) -> str:
        """The machine's architecture, as `uname -m` prints it."""
        return str(self.runner.run(("uname", "-m")).out.strip())


@dataclass(frozen=True)
class ProcessPlace:
    """A Python on this machine, and its environments in `folder`. `source`: the folder that is sent."""

    name: str
    python: str
    folder: Path
    source: Path

    def look(self) -> Has:
        """What this Python has, and which environments are complete."""
        done = LocalRunner().run([self.python, "-P", "-c", _DESCRIBE], timeout_s=_LOOK_S, check=False)
        if done.code:
            raise DeployError(f"{self.python} does not start: {done.err[-300:]}")
        # A Python may print a warning first, which may contain a time or a number that changes.
        base = hashlib.sha256(f"{self.python} {last_line(done.out)}\n".encode()).hexdigest()
        whole = frozenset(str(path.parent) for path in self.folder.glob("*/.whole"))
        return Has((base,), dict(os.environ), whole)

    def environment(self, digest: str) -> str:
        """The environment's folder."""
        return str(self.folder / digest)

    @property
    def who(self) -> str:
        """This machine's Python."""
        return self.python

    def run(
        self, exchange: Exchange, order: Mapping[str, Any], files: Files, digest: str, scratch: str
    ) -> tuple[int, str]:
        """Let a process of that Python carry out an order. An environment without a mark is from an earlier try."""
        target, top = self.folder / digest, self.folder.parent
        where: dict[str, Any] = {**order, "owner": [], "source": str(self.source)}
        for name in ("cache", "tools"):
            where[name] = str(top / f"packages-{name}")
            Path(where[name]).mkdir(mode=0o700, parents=True, exist_ok=True)
        where["made"] = str(top / f"built-{scratch}")
        if scratch:
            Path(where["made"]).mkdir(mode=0o700, exist_ok=True)
        if digest:
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            where["target"] = str(target)
        try:
            argv = [self.python, *commands.loader()]
            source, patience = exchange.input(where, files), _DESCRIBE_S if order["mode"] == "describe" else None
            done = LocalRunner().run(argv, input=source, timeout_s=patience, check=False, on_line=exchange.line)
        finally:
            exchange.close()
        if digest and scratch:
            self.forget(scratch)
        if digest and not done.code:
            os.sync()  # after a crash, a mark without its files would still count
            (target / ".whole").touch()
        elif digest:
            shutil.rmtree(target, ignore_errors=True)
        return done.code, done.err

    def forget(self, scratch: str) -> None:
        """Remove the folder with built wheels."""
        shutil.rmtree(self.folder.parent / f"built-{scratch}", ignore_errors=True)

    def remove(self, digest: str) -> None:
        """Remove the environment's folder."""
        shutil.rmtree(self.folder / digest, ignore_errors=True)

    def machine(self) -> str:
        """The machine's architecture, as the kernel reports it."""
        return platform.machine()


# A place that gets packages. `name`: its name in messages; `who` distinguishes it from all other places.
Place = DockerPlace | ProcessPlace


def on_all_places(places: Sequence[Place], work: Callable[[Place], Any]) -> Results[Any]:
    """Do the work at all of these places at the same time."""
    return on_each({place.name: place for place in places}, work)
