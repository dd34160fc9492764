"""The commands of a host that lists and makes packages, as argument lists. ssh/ quotes them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..core.scripts import Scripts
from ..host.commands import PYTHON
from ..run.environment import PACKAGES

TARGET, CACHE = PACKAGES, "/muster-cache"
_SCRIPT = Scripts(__file__)
_INSIDE, _OWN_IMPORT = Path(__file__).with_name("inside"), re.compile(r"^from \.\w+ import .*\n", re.MULTILINE)
# The program starts as root, gives the volumes to the run's user, and goes on as that user.
_RIGHTS = ("--cap-drop", "ALL", "--cap-add", "CHOWN", "--cap-add", "SETUID", "--cap-add", "SETGID")


def list_packages(image: str, user: str) -> tuple[str, ...]:
    """The image's layers and variables, and our volumes with whole packages: a JSON object a line."""
    return _SCRIPT("list-packages", image, user)


def cache(owner: int) -> str:
    """The volume with what was downloaded and built for the run's user of that uid."""
    return f"muster-cache-packages-{owner}"


def do_packages(volume: str, digest: str, start: str, argv: Sequence[str], user: str, cache: str) -> tuple[str, ...]:
    """Do one order with `argv`, a `container`. It makes the volumes, and removes `volume` if it fails."""
    return _SCRIPT("do-packages", cache, volume, digest, start, user, *argv)


def container(image: str, user: str, cache: str, volume: str, digest: str, limits: Sequence[str]) -> tuple[str, ...]:
    """The container of one order, of `image`; its standard input is the program of `loader`'s size, and the order.

    volume: gets the packages; empty: the order only locks. limits: of memory and processes.
    """
    labels = {"muster.packages": digest, "muster.user": user}
    return (
        *("docker", "run", "--rm", "--interactive", "--init", "--pull", "never", "--log-driver", "none"),
        *(word for name, value in labels.items() for word in ("--label", f"{name}={value}")),
        *("--network", "host", "--user", "0:0", "--security-opt", "no-new-privileges", *_RIGHTS, *limits),
        *("--mount", f"type=volume,source={cache},target={CACHE}"),
        *(("--mount", f"type=volume,source={volume},target={TARGET}") if volume else ()),
        *("--workdir", "/", "--entrypoint", "sh", image, "-c", PYTHON, "sh", *loader()),
    )


def export(image: str, volume: str) -> tuple[str, ...]:
    """Write a volume's packages to standard output, as a tar stream."""
    text = f"import sys, tarfile\nwith tarfile.open(fileobj=sys.stdout.buffer, mode='w|') as t: t.add({TARGET!r}, '.')"
    return (
        *("docker", "run", "--rm", "--pull", "never", "--network", "none", "--cap-drop", "ALL", "--log-driver", "none"),
        *("--label", "muster.packages=export", "--user", "65534:65534", *mount(volume)),
        *("--entrypoint", "sh", image, "-c", PYTHON, "sh", "-P", "-c", text),
    )


def loader() -> tuple[str, ...]:
    """What follows the name of the Python: it reads the program from its input, and leaves the rest to the program."""
    size = len(program())
    text = (
        f"import sys\nb=sys.stdin.buffer.read({size})\n"
        f"len(b)=={size} or sys.exit(9)\nexec(compile(b,'muster-packages','exec'))"
    )
    return ("-P", "-u", "-c", text)


def program() -> bytes:
    """The modules of inside/ as one text, each in the place of its imports."""
    texts = [(_INSIDE / f"{name}.py").read_text(encoding="utf-8") for name in ("tools", "lock", "install", "program")]
    return "\n".join(_OWN_IMPORT.sub("", text) for text in texts).encode()


def mount(volume: str) -> tuple[str, ...]:
    """The options of `docker run` that give a run's container its packages, which it cannot change."""
    return ("--mount", f"type=volume,source={volume},target={TARGET},readonly")


def variables(image: Mapping[str, str], own: Mapping[str, str], target: str = TARGET) -> dict[str, str]:
    """The variables that put the packages before the image's own. `own`: those of the run, which override these."""
    path = own.get("PATH") or image.get("PATH") or "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": f"{target}/bin:{path}", "VIRTUAL_ENV": target}
