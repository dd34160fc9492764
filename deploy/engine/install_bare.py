"""Install an engine on a host that has none: its containers are processes of the login (bare/)."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..core import fields
from ..core.errors import DeployError
from ..core.scripts import Scripts
from ..core.text import last_line
from ..door.session import Done, Session

_SCRIPT, _FOLDER = Scripts(__file__), Path(__file__).with_name("bare")
_WORD, _MOST_SAID = fields.words(100), 300
# The hint to move what Muster keeps on a host to another disk; {}: the host.
OTHER_DISK = "on {}: mv ~/.muster /workspace/ && ln -s /workspace/.muster ~/.muster (or a folder on another disk)"


class LackingHost(NamedTuple):
    """A host without a Python that can run the engine: its processor, and the version line of its Python, if any."""

    machine: str
    old: str


def install(session: Session, own: str, same: bool) -> LackingHost | None:
    """Install the engine below ~/.muster/bin. `own`: the Python that `install_python` installs. Raises DeployError.

    `same`: no other Python will do.

    Returns what the host lacks, or None.
    """
    host, (digest, modules) = session.name, _packed()
    done = session.run(_SCRIPT("bring-bare", digest, own, "same" * same), input=modules, check=False)
    if done.code:
        words = f"{host}: Muster cannot put the program that runs its nodes below ~/.muster: {_last(done)}"
        raise DeployError(words, f"on {host}: ls -ld ~ ~/.muster /workspace; df -h ~")
    rows = fields.rows(done.out)
    if "noexec" in rows:
        words = f"{host}: no program in the home folder can be started: its disk is mounted noexec"
        raise DeployError(words, OTHER_DISK.format(host))
    if "machine" not in rows:
        return None
    return LackingHost(_WORD(rows["machine"][0], "its processor"), _WORD(fields.first(rows, "old"), "its Python"))


def install_python(session: Session, own: str, archive: bytes) -> str:
    """Install a Python below ~/.muster/python, from the archive or with the uv in it.

    Returns the last line of a failure, or empty text.
    """
    done = session.run(_SCRIPT("bring-python", own), input=archive, timeout_s=None, moving=True, check=False)
    return "" if "python" in fields.rows(done.out) else _last(done)


def _last(done: Done) -> str:
    return last_line(done.err, f"code {done.code}")[:_MOST_SAID]


def python_of(version: str) -> str:
    """The Python version in a bare engine's version; empty if `install` would install another engine."""
    digest, _, python = version.removeprefix("bare-").partition("-")
    return python if digest == _packed()[0] else ""


@cache
def _packed() -> tuple[str, bytes]:
    """A digest of the engine's modules, and the modules as a JSON object: their texts by file name."""
    packed = json.dumps({path.name: path.read_text() for path in sorted(_FOLDER.glob("*.py"))}).encode()
    return hashlib.sha256(packed).hexdigest()[:32], packed
