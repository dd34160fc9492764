"""What a run's image already has, as hosts report it: Python, packages, and the platform for which uv gets wheels.

A host's report is checked, and counts only if all hosts report the same: otherwise one host could invent something that
changes what the others install. What a host reported is remembered only for that host and those layers.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from ...core.errors import DeployError
from ...core.fields import array, default, document, record, text
from ...core.program import hosts_as_typed
from ..background import BackgroundTask
from ..remember import remember as write
from . import store
from .inside.tools import FROM_BASE, NEED, normal

_MOST, _MOST_NEEDS = 5000, 1000
_NAME = re.compile(store.NAME)
# As PEP 440 defines it. Debian's own versions (1.1build1) do not match, and with one of them uv would read nothing.
_VERSION = re.compile(
    r"v?([0-9]{1,9}!)?[0-9]{1,20}(\.[0-9]{1,20}){0,20}([-_.]?(a|b|c|rc|alpha|beta|pre|preview)[-_.]?[0-9]{0,20})?"
    r"(-[0-9]{1,20}|[-_.]?(post|rev|r)[-_.]?[0-9]{0,20})?([-_.]?dev[-_.]?[0-9]{0,20})?(\+[a-z0-9]+([-_.][a-z0-9]+)*)?",
    re.I,
)
_PACKAGE = record(
    {
        "name": text(200),
        "version": text(300),
        "requires": default(array(text(4000), _MOST_NEEDS), []),
        "extras": default(array(text(200), _MOST_NEEDS), []),
    }
)
_READ = record(
    {
        "python": text(40, r"3\.[0-9]{1,3}\.[0-9]{1,3}"),
        "platform": record({"machine": text(30, r"\w+"), "libc": array(text(20, r"[\w.]+"), 2)}),
        "base": array(_PACKAGE, _MOST),
    }
)
# The versions of glibc that uv has names for: a wheel for an older one runs on a newer one.
_GLIBC = (17, 28, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40)


@dataclass(frozen=True)
class Package:
    """A package in the base: its normalized name, its version, what it requires, and its extras."""

    name: str
    version: str
    requires: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()


@dataclass(frozen=True)
class Base:
    """A described base: its Python version, the kernel's name for its processor, its libc, and its packages by name."""

    python: str
    machine: str
    libc: tuple[str, str]
    packages: tuple[Package, ...]

    @property
    def digest(self) -> str:
        """A digest of everything in it."""
        return hashlib.sha256(json.dumps(astuple(self)).encode()).hexdigest()

    @property
    def torch(self) -> Mapping[str, str]:
        """The versions of packages that only the base provides (the local part tells the build). Raises DeployError."""
        versions = {package.name: package.version for package in self.packages if FROM_BASE.fullmatch(package.name)}
        if "torch" not in versions:
            raise DeployError("the base image has no torch: choose an image that has it", "--image pytorch/pytorch:TAG")
        return versions

    @property
    def platform(self) -> str:
        """The platform in uv's spelling. Raises DeployError for a platform that uv does not know."""
        kind, version = self.libc
        fits = [known for known in _GLIBC if known <= _minor(self.libc)]
        if self.machine not in ("x86_64", "aarch64") or kind != "glibc" or not fits:
            raise DeployError(
                f"no packages can be chosen for {self.machine} with {kind} {version}",
                "--requirements no; put the packages into an image: --dockerfile FILE",
            )
        return f"{self.machine}-manylinux_2_{fits[-1]}"


class NotYet(DeployError):
    """Raised if something cannot be foreseen because only a build tells it."""


class Foreseen(NamedTuple):
    """A base that hosts have or will have, and the lock for it. The lock counts if they then really have that base."""

    base: Base
    lock: store.Lock

    def is_for(self, described: Base) -> bool:
        """Whether hosts have that base: the same Python and platform, and the same packages and versions."""
        return _named(self.base) == _named(described)


# None: nothing could be foreseen.
Foreseeing = BackgroundTask[Foreseen | None]


def of_lock(plain: Base, lock: store.Lock) -> Base:
    """What a base will be once this lock is installed on it. What its packages require is left to their index."""
    pins = [line.split(" ", 1)[0].split("==") for line in lock.lines]
    pins += [[source.name, source.version] for source in lock.sources]
    return replace(plain, packages=tuple(Package(normal(name), version) for name, version in sorted(pins)))


def _named(base: Base) -> Base:
    return replace(base, packages=tuple(Package(package.name, package.version) for package in base.packages))


def _minor(libc: tuple[str, str]) -> int:
    return int(libc[1].split(".")[1]) if re.fullmatch(r"2\.[0-9]{1,3}", libc[1]) else 0


def read(answer: object, what: str) -> Base:
    """Parse a host's answer. Raises BadAnswer. Leaves out what no index could have (odd versions, addresses)."""
    got = _READ(answer, what)
    libc = got["platform"]["libc"]
    packages = {
        name: Package(
            name,
            row["version"],
            tuple(filter(NEED.fullmatch, row["requires"])),
            tuple(filter(_NAME.fullmatch, row["extras"])),
        )
        for row in got["base"]
        for name in [normal(row["name"])]
        if _NAME.fullmatch(row["name"]) and _VERSION.fullmatch(row["version"])
    }
    kind, version = libc if len(libc) == 2 else ("no libc", "")
    return Base(
        got["python"], got["platform"]["machine"], (kind, version), tuple(v for _, v in sorted(packages.items()))
    )


def same(described: Mapping[str, Base]) -> Base:
    """The one base that all hosts describe. If they differ, DeployError lists the odd hosts and the first difference.

    If the versions of glibc differ, the result has the oldest: what is built for that one runs with all of them.
    """
    oldest = min((base.libc for base in described.values()), key=_minor)
    described = {n: replace(b, libc=oldest) if b.libc[0] == oldest[0] else b for n, b in described.items()}
    digests = {name: base.digest for name, base in described.items()}
    counts = {digest: list(digests.values()).count(digest) for digest in digests.values()}
    usual = max(counts, key=lambda digest: counts[digest])
    base = next(base for name, base in described.items() if digests[name] == usual)
    if odd := [name for name in described if digests[name] != usual]:
        others = [name for name in described if name not in odd]
        raise DeployError(
            f"{', '.join(odd)}: the image's packages differ from those on {', '.join(others)}: "
            f"{_difference(base, described[odd[0]])}",
            "docker image inspect on both; leave the host out, or give all one image: "
            f"--hosts {hosts_as_typed(','.join(others))}",
        )
    return base


def remembered(folder: Path, who: str, layers: tuple[str, ...]) -> Base | None:
    """What this host reported about these layers before; None if it was never asked, or if the file is damaged."""
    content = store.read(_path(folder, who, layers))
    try:
        return read(document(content, "a described base", most=16 << 20), "a described base") if content else None
    except DeployError:
        return None


def remember(folder: Path, who: str, layers: tuple[str, ...], base: Base) -> None:
    """Save what a host reported about its layers."""
    rows = [asdict(package) for package in base.packages]
    value = {"python": base.python, "platform": {"machine": base.machine, "libc": base.libc}, "base": rows}
    write(folder, _path(folder, who, layers).name, json.dumps(value).encode())


def _path(folder: Path, who: str, layers: tuple[str, ...]) -> Path:
    key = hashlib.sha256(json.dumps([store.FORMAT, who, layers]).encode()).hexdigest()[:32]
    return folder / f"base-{key}.json"


def _difference(usual: Base, other: Base) -> str:
    """The first difference, in words."""
    if (usual.python, usual.machine, usual.libc) != (other.python, other.machine, other.libc):
        has, had = (f"Python {b.python} on {b.machine} with {' '.join(b.libc)}" for b in (other, usual))
        return f"{has}, not {had}"
    mine, theirs = ({p.name: p for p in base.packages} for base in (usual, other))
    name = min(name for name in {*mine, *theirs} if mine.get(name) != theirs.get(name))
    has, had = (f"{p.name} {p.version}" if (p := side.get(name)) else f"no {name}" for side in (theirs, mine))
    return f"{has}, not {had}" if has != had else f"{name} says that it needs something else"
