"""The commands with which a host lists, builds and installs packages, as argument lists. door/ quotes them.

These commands also decide what may write where: docs/decisions/0138-a-build-is-disposable.md has the reasons.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...core.scripts import Argv, Scripts
from ...host.commands import PYTHON
from ...run.environment import PACKAGES
from ..folder.content import WORKSPACE

TARGET = PACKAGES
# Where the program in a container finds its files; its own scratch space is /tmp.
PLACES = {
    "cache": "/muster-cache",
    "tools": "/muster-tools",
    "made": "/muster-wheels",
    "source": WORKSPACE,
    "target": TARGET,
}
# A compiler starts many processes, but no build needs as many as a run may have.
BUILD_PROCESSES = 4096
_SCRIPT = Scripts(__file__)
_INSIDE, _OWN_IMPORT = Path(__file__).with_name("inside"), re.compile(r"^from \.\w+ import .*\n", re.MULTILINE)
_MODULES = ("tools", "wheel", "describe", "build", "install", "program")
# The program is root in its container; what it starts runs as the packages' user or the build's user. Without
# DAC_OVERRIDE, root has no right to another user's files. KILL is for ending processes that a build leaves running.
_RIGHTS = ("CHOWN", "SETUID", "SETGID", "KILL")


@dataclass(frozen=True)
class Box:
    """Where orders are carried out: an image, for the login `user`, whose packages belong to `uid`.

    base: the name of the base, from `base`. scratch: the token of one install, for the wheels that are built for it;
    empty if none are built. limits: options of `docker run` for memory and processes. mounts: the folder that is sent,
    for a build.
    """

    image: str
    user: str
    uid: int
    base: str
    scratch: str = ""
    limits: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()

    @property
    def cache(self) -> str:
        """The volume with downloaded files. A build cannot reach it."""
        return f"muster-cache-packages-{self.uid}-{self.base}"

    @property
    def tools(self) -> str:
        """The volume with uv and the wheels that were kept. It belongs to root, and is read-only for a build."""
        return f"muster-cache-tools-{self.uid}-{self.base}"

    @property
    def wheels(self) -> str:
        """The volume with the wheels that were built for one install."""
        return f"muster-cache-wheels-{self.uid}-{self.scratch}" if self.scratch else ""


def list_packages(image: str, user: str) -> Argv:
    """Print the image's layers and variables, and Muster's volumes with complete packages: one JSON object a line."""
    return _SCRIPT("list-packages", image, user)


def base(layers: Sequence[str], variables: Mapping[str, str]) -> str:
    """A name for a base. One base never sees another's caches and tools, because its programs could write there.

    An image's variables count too, because they decide which code its Python runs.
    """
    return hashlib.sha256(json.dumps([2, list(layers), sorted(variables.items())]).encode()).hexdigest()[:32]


def describe(box: Box) -> Argv:
    """The container that describes the base: it has no network, no volume and no capabilities."""
    user = ("--network", "none", "--user", f"{box.uid or 65534}:65534")
    return (*_container(box, "describe"), *user, *box.limits, *_program(box.image))


def build(box: Box) -> Argv:
    """Build wheels into the box's volume for wheels. The tools are read-only; all else is gone with the container."""
    container = (
        *(*_container(box, "build"), *_as_root()),
        *(*box.limits, "--pids-limit", str(BUILD_PROCESSES)),
        *_volume(box.tools, PLACES["tools"], read_only=True),
        *_volume(box.wheels, PLACES["made"]),
        *box.mounts,
        *_program(box.image),
    )
    return _SCRIPT("run-order", box.user, box.tools, box.wheels, "", "", "", *container)


def install(box: Box, volume: str, digest: str, start: str) -> Argv:
    """Install into `volume`, which gets the label `digest` and counts once the host has written the mark `start`."""
    container = install_container(box, volume, digest)
    return _SCRIPT("run-order", box.user, f"{box.cache} {box.tools}", box.wheels, volume, digest, start, *container)


def install_container(box: Box, volume: str, digest: str) -> Argv:
    """The container of an install. It runs no code from a package."""
    return (
        *(*_container(box, digest), *_as_root(), *box.limits),
        *_volume(box.cache, PLACES["cache"]),
        *_volume(box.tools, PLACES["tools"]),
        *(_volume(box.wheels, PLACES["made"], read_only=True) if box.wheels else ()),
        *_volume(volume, TARGET),
        *_program(box.image),
    )


def forget(box: Box) -> Argv:
    """Remove the wheels that were built for an install that did not follow."""
    return ("docker", "volume", "rm", "--force", box.wheels)


def _container(box: Box, what: str) -> Argv:
    """The options of every order's container: it cannot write to the image, and /tmp is gone with the container."""
    labels = {"muster.packages": what, "muster.user": box.user}
    return (
        *("docker", "run", "--rm", "--interactive", "--init", "--pull", "never", "--log-driver", "none"),
        *(word for name, value in labels.items() for word in ("--label", f"{name}={value}")),
        *("--read-only", "--mount", "type=volume,target=/tmp", "--cap-drop", "ALL"),
        *("--security-opt", "no-new-privileges", "--workdir", "/"),
    )


def _as_root() -> Argv:
    return ("--network", "host", "--user", "0:0", *(word for right in _RIGHTS for word in ("--cap-add", right)))


def _volume(name: str, target: str, read_only: bool = False) -> Argv:
    # Without nocopy, Docker would copy the image's files at that path into a new volume.
    words = f"type=volume,source={name},target={target},volume-nocopy"
    return ("--mount", f"{words},readonly" if read_only else words)


def _program(image: str) -> Argv:
    return ("--entrypoint", "sh", image, "-c", PYTHON, "sh", *loader())


def loader() -> Argv:
    """The arguments for Python: they make it read the program from standard input, whose rest the program reads."""
    size = len(program())
    text = (
        f"import sys,zlib\nb=sys.stdin.buffer.read({size})\n"
        f"len(b)=={size} or sys.exit(9)\nexec(compile(zlib.decompress(b),'muster-packages','exec'))"
    )
    return ("-P", "-u", "-c", text)


def program() -> bytes:
    """The modules of inside/ as one compressed text, each in place of its imports."""
    texts = [_OWN_IMPORT.sub("", (_INSIDE / f"{name}.py").read_text(encoding="utf-8")) for name in _MODULES]
    child = (_INSIDE / "child.py").read_text(encoding="utf-8")
    return zlib.compress("\n".join(texts).replace('\nCHILD = ""', f"\nCHILD = {child!r}", 1).encode(), 9)


def mount(volume: str) -> Argv:
    """The options of `docker run` that mount the packages, read-only, into a run's container."""
    return ("--mount", f"type=volume,source={volume},target={TARGET},readonly")


def variables(image: Mapping[str, str], own: Mapping[str, str], target: str = TARGET) -> dict[str, str]:
    """The variables that put the packages before the image's own. `own`: the run's; its PATH replaces the image's."""
    path = own.get("PATH") or image.get("PATH") or "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": f"{target}/bin:{path}", "VIRTUAL_ENV": target}
