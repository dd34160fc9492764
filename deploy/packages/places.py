"""Where packages are installed: a Docker engine with a volume for each content, or this machine with a folder."""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from threading import Thread, Timer
from typing import Any, NamedTuple, Protocol

from ..core import docker_faults
from ..core.errors import DeployError
from ..core.fields import array, default, json_object, record, text
from ..image.model import DIGEST, WORKSPACE
from . import commands
from .exchange import Exchange, Files

_LISTED = record(
    {}, {"layers": array(DIGEST), "environment": default(array(text(1 << 16), 10_000), []), "volume": text(300)}
)
_DESCRIBE = (
    "import importlib.metadata as m, json, sys; "
    "print(json.dumps([sys.version, sorted({f\"{d.metadata['Name']}=={d.version}\" for d in m.distributions()})]))"
)
_LOOK_S = 60.0
HERE = "this machine"


class Has(NamedTuple):
    """What a place has: what tells its base from another, the base's variables, the names of whole environments."""

    base: tuple[str, ...]
    variables: Mapping[str, str]
    environments: frozenset[str]


class Place(Protocol):
    """One place that gets packages."""

    @property
    def name(self) -> str:
        """The place's name in messages."""

    def look(self) -> Has:
        """What it has. Raises DeployError."""

    def environment(self, digest: str) -> str:
        """The name there of the environment with that content."""

    def run(self, digest: str, exchange: Exchange, order: Mapping[str, Any], files: Files) -> tuple[int, str]:
        """Let the program do an order; an empty digest: it only locks. Returns its exit code and its other output."""

    def remove(self, digest: str) -> None:
        """Remove the environment with that content."""

    def export(self, digest: str, take: Callable[[bytes], None]) -> None:
        """Give the environment with that content to `take`, as a tar stream in pieces. Raises DeployError."""

    def machine(self) -> str:
        """The processor, as the kernel names it."""


class Runner(Protocol):
    """What runs commands beside a Docker engine: an SSH session, or `Here`."""

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes | Iterable[bytes] | None = None,
        timeout_s: float | None = 60,
        check: bool = True,
        on_line: Callable[[str], None] | None = None,
    ) -> Any:
        """Run a command to its end, as ssh.session.Session.run does."""

    def receive(self, argv: Sequence[str], take: Callable[[bytes], None]) -> Any:
        """Run a command with much output, as ssh.session.Session.receive does."""


class Done(NamedTuple):
    """How a command of this machine ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class DockerPlace:
    """A Docker engine. `owner`: uid and gid of the run's processes. `limits`, `mounts`: options of docker run.

    `code_layers`: how many of the image's layers are the user's code.
    """

    name: str
    runner: Runner
    image: str
    user: str
    owner: tuple[int, int]
    limits: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    code_layers: int = 1

    def look(self) -> Has:
        """The image's layers below the code, the image's variables, our whole volumes."""
        done = self.runner.run(commands.list_packages(self.image, self.user), check=False)
        if done.code:
            raise docker_faults.fault(done.err)
        lines = [line for line in done.out.splitlines() if line.startswith("{")]
        rows = [_LISTED(json_object(line, "its packages"), "its packages") for line in lines]
        shown: dict[str, Any] = next((row for row in rows if "layers" in row), {"layers": [], "environment": []})
        variables = dict(line.partition("=")[::2] for line in shown.get("environment") or ())
        layers = shown["layers"][: len(shown["layers"]) - self.code_layers]
        return Has(tuple(layers), variables, frozenset(row["volume"] for row in rows if "volume" in row))

    def environment(self, digest: str) -> str:
        """The volume's name."""
        return f"muster-packages-{self.owner[0]}-{digest}"

    def container(self, volume: str, digest: str) -> tuple[str, ...]:
        """The `docker run` of one order."""
        limits = (*self.limits, *self.mounts)
        return commands.container(self.image, self.user, commands.cache(self.owner[0]), volume, digest, limits)

    def run(self, digest: str, exchange: Exchange, order: Mapping[str, Any], files: Files) -> tuple[int, str]:
        """In a container of the image, which is removed at its end."""
        volume = self.environment(digest) if digest else ""
        container, cache = self.container(volume, digest or "lock"), commands.cache(self.owner[0])
        argv = commands.do_packages(volume, digest, secrets.token_hex(16), container, self.user, cache)
        place = {"owner": self.owner, "cache": commands.CACHE, "source": WORKSPACE}
        where = {**order, **place, **({"target": commands.TARGET} if volume else {})}
        try:
            source = exchange.input(where, files)
            done = self.runner.run(argv, input=source, timeout_s=None, check=False, on_line=exchange.line)
        finally:
            exchange.close()
        return done.code, done.err or done.out

    def export(self, digest: str, take: Callable[[bytes], None]) -> None:
        """The volume's content."""
        done = self.runner.receive(commands.export(self.image, self.environment(digest)), take)
        if done.code:
            raise docker_faults.fault(done.err)

    def remove(self, digest: str) -> None:
        """Remove the volume."""
        self.runner.run(("docker", "volume", "rm", "--force", self.environment(digest)), check=False)

    def machine(self) -> str:
        """The machine's architecture, as `uname -m` says."""
        return str(self.runner.run(("uname", "-m")).out.strip())


class Here:
    """Runs commands on this machine, as a session does on a host."""

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes | Iterable[bytes] | None = None,
        timeout_s: float | None = 60,
        check: bool = True,
        on_line: Callable[[str], None] | None = None,
    ) -> Done:
        """Run a command to its end, and kill it after `timeout_s`. Raises DeployError if it fails, and `check`."""
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        chunks = (input,) if isinstance(input, bytes) else input or ()
        Thread(target=_feed, args=(process, chunks), daemon=True).start()
        lines = deque[str](maxlen=1000)
        assert process.stdout is not None
        too_long = Timer(timeout_s or 0, process.kill)
        if timeout_s:
            too_long.start()
        try:
            for data in process.stdout:
                line = data.decode(errors="replace").rstrip("\n")
                if on_line:
                    on_line(line)
                if not on_line or not line.startswith("{"):
                    lines.append(line)
            code = process.wait()
        finally:
            too_long.cancel()
            process.kill()
        out = "\n".join(lines)
        if check and code:
            raise DeployError(f"this machine: `{argv[0]}` ended with code {code}: {out[-300:]}")
        return Done(code, out, out if code else "")

    def receive(self, argv: Sequence[str], take: Callable[[bytes], None]) -> Done:
        """Run a command; `take` gets its output in pieces."""
        # A full pipe without a reader would stop a command that complains at length.
        with TemporaryFile() as words:
            with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=words) as process:
                assert process.stdout is not None
                while piece := process.stdout.read(1 << 20):
                    take(piece)
            words.seek(0)
            return Done(process.returncode, "", words.read(1 << 20).decode(errors="replace"))


@dataclass(frozen=True)
class ProcessPlace:
    """A Python of this machine, and environments of it in `folder`. `source`: the folder that is sent."""

    name: str
    python: str
    folder: Path
    source: Path

    def look(self) -> Has:
        """What this Python has, and which environments are whole."""
        done = subprocess.run(
            [self.python, "-c", _DESCRIBE], cwd="/", capture_output=True, text=True, timeout=_LOOK_S, check=False
        )
        if done.returncode:
            raise DeployError(f"{self.python} does not start: {done.stderr.strip()[-300:]}")
        base = hashlib.sha256(f"{self.python} {done.stdout}".encode()).hexdigest()
        whole = frozenset(str(path.parent) for path in self.folder.glob("*/.whole"))
        return Has((base,), dict(os.environ), whole)

    def environment(self, digest: str) -> str:
        """The environment's folder."""
        return str(self.folder / digest)

    def run(self, digest: str, exchange: Exchange, order: Mapping[str, Any], files: Files) -> tuple[int, str]:
        """In a process of that Python. An environment without its mark is what an earlier try left."""
        target, cache = self.folder / digest, self.folder.parent / "cache"
        where: dict[str, Any] = {**order, "owner": [], "cache": str(cache), "source": str(self.source)}
        cache.mkdir(parents=True, exist_ok=True)
        if digest:
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            where["target"] = str(target)
        try:
            argv = [self.python, *commands.loader()]
            done = Here().run(argv, input=exchange.input(where, files), check=False, on_line=exchange.line)
        finally:
            exchange.close()
        if digest and not done.code:
            (target / ".whole").touch()
        elif digest:
            shutil.rmtree(target, ignore_errors=True)
        return done.code, done.err

    def export(self, digest: str, take: Callable[[bytes], None]) -> None:
        """Not used: the environment of this machine's own Python is never exported."""
        raise DeployError("an environment of this machine's Python fits no other machine")

    def remove(self, digest: str) -> None:
        """Remove the environment's folder."""
        shutil.rmtree(self.folder / digest, ignore_errors=True)

    def machine(self) -> str:
        """The machine's architecture, as the kernel says."""
        return platform.machine()


def _feed(process: subprocess.Popen[bytes], chunks: Iterable[bytes]) -> None:
    assert process.stdin is not None
    with suppress(OSError, ValueError):
        for chunk in chunks:
            process.stdin.write(chunk)
            process.stdin.flush()
    with suppress(OSError):
        process.stdin.close()
