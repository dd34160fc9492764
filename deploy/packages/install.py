"""Packages onto the hosts of a run: one host resolves them once, and each host installs them for itself.

The order: ask each host what it has; find the lock of an earlier time, or let the first host that reaches an index make
it; let each host that lacks the packages install them; compare the digests of all installed files.
"""

from __future__ import annotations

import base64
import json
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..core import docker_faults
from ..core.errors import BadAnswer, DeployError
from ..core.fields import array, default, json_object, record, text, whole
from ..core.printable import visible
from ..core.program import FAB
from ..core.results import Results
from ..core.text import amount, several
from ..host import audit
from ..image.model import DIGEST, WORKSPACE
from ..ssh.session import Session, on_all
from . import commands, store, uv
from .inside.tools import NO_INDEX, NO_UV
from .requirements import Requirements
from .settings import Settings
from .store import Lock

Tell = Callable[[str, str], None]
_MOST_WHEELS = 4 << 30  # bytes of wheels that one host may have built
_LISTED = record(
    {}, {"layers": array(DIGEST), "environment": default(array(text(1 << 16), 10_000), []), "volume": text(300)}
)
_INSTALLED = record({"digest": text(64, "[0-9a-f]{64}"), "size": whole()})
_PIECE = record({"wheel": text(300, store.WHEEL), "bytes": text(1 << 20)})


@dataclass(frozen=True)
class Asked:
    """What to install, and for whom: `users` and `owners` (uid, gid) by host; `limits`: of docker run, by host."""

    requirements: Requirements
    settings: Settings
    image: str
    users: Mapping[str, str]
    owners: Mapping[str, tuple[int, int]]
    limits: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Installed:
    """The packages of a run on all its hosts. `volumes` by host, empty if the base has all that is needed.

    `image`: the variables of the image. `sent`: bytes of uv and wheels that went through this machine.
    """

    lock: Lock
    volumes: Mapping[str, str]
    image: Mapping[str, str]
    size: int = 0
    fresh: bool = False
    sent: int = 0


@dataclass(frozen=True)
class _Host:
    """What a host has: the image's layers below the code, the image's variables, our whole volumes."""

    layers: tuple[str, ...]
    variables: Mapping[str, str]
    volumes: frozenset[str]


class Unreached(DeployError):
    """A host that reaches no index; `uv`: it could not even get uv."""

    def __init__(self, host: str, words: str, uv: bool) -> None:
        super().__init__(f"{host}: it reaches no package index: {words}", "docs/packages.md#no-index")
        self.uv = uv


def look(sessions: Sequence[Session], asked: Asked) -> dict[str, _Host]:
    """What each host has. Raises HostsFailed."""

    def ask(session: Session) -> _Host:
        host = session.host.name
        done = session.run(commands.list_packages(asked.image, asked.users[host]), check=False)
        if done.code:
            raise docker_faults.fault(done.err)
        rows = [
            _LISTED(json_object(line, "its packages"), "its packages")
            for line in done.out.splitlines()
            if line.startswith("{")
        ]
        shown: dict[str, Any] = next((row for row in rows if "layers" in row), {"layers": [], "environment": []})
        variables = dict(line.partition("=")[::2] for line in shown.get("environment") or ())
        return _Host(
            tuple(shown["layers"][:-1]), variables, frozenset(row["volume"] for row in rows if "volume" in row)
        )

    return on_all(sessions, ask).all()


def known(asked: Asked, layers: Sequence[str], folder: Path | None = None) -> tuple[str, Lock | None]:
    """The key of these requirements on that base, and the lock that was made for it before."""
    key = asked.requirements.key(store.FORMAT, uv.VERSION, list(layers), asked.settings.public)
    return key, store.find(key, folder or store.default_folder())


def bring(sessions: Sequence[Session], asked: Asked, tell: Tell, folder: Path | None = None) -> Installed:
    """Install what is asked on every host. Calls `tell(host, words)` with each line of progress, from any thread.

    Raises DeployError with the tool's own words. What was there stays, whatever happens.
    """
    folder, hosts = folder or store.default_folder(), look(sessions, asked)
    first = next(iter(hosts.values()))
    key, lock = known(asked, first.layers, folder)
    fresh, sent = lock is None, [0]
    if lock is None:
        lock = _locked(sessions, asked, tell, sent)
        store.keep(key, lock, folder)
    if not lock.lines:
        return Installed(lock, {}, first.variables, fresh=fresh)
    digest = lock.digest(*first.layers)
    volumes = {host: f"muster-packages-{asked.owners[host][0]}-{digest}" for host in hosts}
    lacking = [session for session in sessions if volumes[session.host.name] not in hosts[session.host.name].volumes]
    done = on_all(lacking, lambda session: _install(session, asked, lock, digest, volumes, tell, sent)).all()
    files = _agreed(sessions, {host: answer["digest"] for host, answer in done.items()}, lock, volumes)
    if files != lock.files:
        store.keep(key, replace(lock, files=files), folder)
    size = max((answer["size"] for answer in done.values()), default=0)
    return Installed(lock, volumes, first.variables, size, fresh or bool(done), sent[0])


def _locked(sessions: Sequence[Session], asked: Asked, tell: Tell, sent: list[int]) -> Lock:
    """The lock that the first host with a way to an index makes. Raises DeployError with uv's words."""
    unreached = dict[str, DeployError]()
    for session in sessions:
        try:
            return _lock_on(session, asked, tell, sent)
        except Unreached as fault:
            unreached[session.host.name] = fault
    Results(unreached).all()
    raise DeployError("no host to lock packages on")


def _lock_on(session: Session, asked: Asked, tell: Tell, sent: list[int]) -> Lock:
    needs = asked.requirements
    order = {
        "mode": "lock",
        "kind": needs.kind,
        "requirements": needs.path,
        "source": WORKSPACE,
        "builds": bool(needs.packages),
        "files_read": [
            path for path, content in needs.files if path.endswith((".txt", ".in", ".toml")) and len(content) != 32
        ],
    }
    answer, wheels = _do(session, asked, order, {}, "", "lock", tell, sent)
    read = store.LOCK(answer, "its lock")
    return Lock(tuple(read["lock"]), tuple(read["left_out"]), read["base"], wheels)


def _install(
    session: Session, asked: Asked, lock: Lock, digest: str, volumes: Mapping[str, str], tell: Tell, sent: list[int]
) -> dict[str, Any]:
    order = {"mode": "install", "lock": list(lock.lines), "target": commands.TARGET}
    files = {f"wheels/{name}": data for name, data in lock.wheels.items()}
    volume = volumes[session.host.name]
    answer, _ = _do(session, asked, order, files, volume, digest, tell, sent)
    installed: dict[str, Any] = _INSTALLED(answer, "its packages")
    audit.note(session, f"installed {several(len(lock.lines), 'package')} ({amount(installed['size'])}) in {volume}")
    return installed


def _do(
    session: Session,
    asked: Asked,
    order: Mapping[str, Any],
    files: Mapping[str, bytes],
    volume: str,
    digest: str,
    tell: Tell,
    sent: list[int],
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Let a host do one order; once more with the uv of this machine if the host gets none."""
    try:
        return _Order(session, asked, tell, sent).do(order, files, volume, digest)
    except Unreached as fault:
        if not fault.uv:
            raise
        tell(session.host.name, "sending uv")
        files = {**files, "uv": uv.program_for(session.host.name, session.run(("uname", "-m")).out.strip())}
        return _Order(session, asked, tell, sent).do(order, files, volume, digest)


class _Order:
    """One order on one host: what goes in, and what comes out line by line."""

    def __init__(self, session: Session, asked: Asked, tell: Tell, sent: list[int]) -> None:
        self._session, self._asked, self._tell, self._sent = session, asked, tell, sent
        self._host, self._over = session.host.name, threading.Event()
        self._answer: dict[str, Any] | None = None
        self._failed: tuple[int, str] | None = None
        self._wheels, self._size = dict[str, bytearray](), 0

    def do(
        self, order: Mapping[str, Any], files: Mapping[str, bytes], volume: str, digest: str
    ) -> tuple[dict[str, Any], dict[str, bytes]]:
        """The answer, and the wheels that came with it. Raises DeployError with uv's own words."""
        user = self._asked.users[self._host]
        cache = commands.cache(self._asked.owners[self._host][0])
        container = commands.container(self._asked.image, user, cache, volume, digest, self._asked.limits[self._host])
        argv = commands.do_packages(volume, digest, secrets.token_hex(16), container, user, cache)
        try:
            done = self._session.run(
                argv, input=self._input(order, files), timeout_s=None, check=False, on_line=self._line
            )
        finally:
            self._over.set()
        if self._failed:
            code, words = self._failed
            if code in (NO_UV, NO_INDEX):
                raise Unreached(self._host, words, code == NO_UV)
            raise DeployError(f"{self._host}: uv could not {'install' if volume else 'resolve'} the packages of "
                              f"{self._asked.requirements.path}:\n{words}", _hint(words))  # fmt: skip
        if done.code or self._answer is None:
            raise docker_faults.fault(done.err or done.out)
        return self._answer, {name: bytes(data) for name, data in self._wheels.items()}

    def _input(self, order: Mapping[str, Any], files: Mapping[str, bytes]) -> Iterator[bytes]:
        settings = self._asked.settings
        texts = {
            "uv.txt": uv.PINS.encode(),
            **({"ca": settings.certificates} if settings.certificates else {}),
            **files,
        }
        paths = (
            dict.fromkeys(("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE"), "ca") if settings.certificates else {}
        )
        whole_order = {
            **order,
            "uv": uv.VERSION,
            "owner": self._asked.owners[self._host],
            "cache": commands.CACHE,
            "variables": dict(settings.variables),
            "paths": paths,
            "files": [(name, len(data)) for name, data in texts.items()],
        }
        yield commands.program()
        yield json.dumps(whole_order).encode() + b"\n"
        yield from texts.values()
        self._sent[0] += sum(map(len, files.values()))
        # The end of the input would end the order: docs/packages.md.
        self._over.wait()

    def _line(self, line: str) -> None:
        if not line.startswith("{"):
            return
        row = json_object(line, "its packages")
        if "say" in row:
            self._tell(self._host, visible(self._asked.settings.hidden(str(row["say"])[:300])))
        elif "wheel" in row:
            piece = _PIECE(row, "a wheel")
            self._size += len(piece["bytes"])
            if self._size > _MOST_WHEELS:
                raise DeployError(f"{self._host}: it built more than {amount(_MOST_WHEELS)} of wheels")
            self._wheels.setdefault(piece["wheel"], bytearray()).extend(_bytes(piece["bytes"]))
        elif "failed" in row:
            self._failed = (
                whole(0, 255)(row["failed"], "its code"),
                self._asked.settings.hidden(str(row.get("words", ""))[:8000]),
            )
            self._over.set()
        elif isinstance(row.get("done"), dict):
            self._answer = row["done"]
            self._over.set()


def _agreed(sessions: Sequence[Session], digests: Mapping[str, str], lock: Lock, volumes: Mapping[str, str]) -> str:
    """The one digest of the installed files. On a host that has others, removes them and raises DeployError."""
    wanted = lock.files or next(iter(digests.values()), "")
    if odd := [host for host, digest in digests.items() if digest != wanted]:
        for session in (session for session in sessions if session.host.name in odd):
            session.run(("docker", "volume", "rm", "--force", volumes[session.host.name]), check=False)
        raise DeployError(
            f"{', '.join(odd)}: the installed files differ from those of the other hosts, from the same lock",
            "deploy again; if they still differ, the index serves different files under one name",
        )
    return wanted


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as fault:
        raise BadAnswer("a wheel", "base64", text) from fault


def _hint(words: str) -> str:
    low = words.lower()
    if "excludes" in low and "of the base image" in low:
        return "loosen that line, or name a base with that version: --image pytorch/pytorch:TAG"
    if "no space left" in low:
        return f"on that host: docker system df; `{FAB} clean` shows what Muster keeps there"
    if any(word in low for word in ("gcc", "compiler", "cc1", "nvcc", "cuda_home", "g++")):
        return "it needs a compiler: name an image that has one (--image pytorch/pytorch:...-devel)"
    return "correct the file; --requirements no leaves the packages out"
