"""Make wheels that have only a name, a version and requirements: uv resolves with them in place of the real packages.

A stub stands for a package in the base image, or for one that is not in an index, such as one each host builds itself.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

from ..base import Base
from ..inside.tools import comes_with_torch, normal, read_name
from .archives import Wheel

_WHEEL = "Wheel-Version: 1.0\nGenerator: muster\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def of_base(folder: Path, base: Base) -> None:
    """Make a stub for each package in the base. Requirements on what comes with torch stay only if the base has it."""
    own = set(base.torch)
    for package in base.packages:
        needs = [need for need in package.requires if not comes_with_torch(need) or read_name(need) in own]
        write(folder, package.name, version(package.version), needs, package.extras)


def version(text: str) -> str:
    """The version with a local part, which no index has, but with the same meaning."""
    return text if "+" in text else f"{text}+base"


def of_wheel(folder: Path, wheel: Wheel, requires: Sequence[str]) -> None:
    """Make a stub for a wheel, with that wheel's own file name, which tells where it can be installed."""
    python = f"Requires-Python: {wheel.python}\n" if wheel.python else ""
    _write(folder / wheel.file, wheel.name, wheel.version, requires, wheel.extras, python)


def path_of(folder: Path, name: str, version: str) -> Path:
    """The path of a stub."""
    return folder / f"{re.sub(r'[-_.]+', '_', name)}-{version}-py3-none-any.whl"


def write(folder: Path, name: str, version: str, requires: Sequence[str], extras: Sequence[str]) -> None:
    """Make one stub, which fits every platform."""
    _write(path_of(folder, name, version), name, version, requires, extras)


def _write(
    path: Path, name: str, version: str, requires: Sequence[str], extras: Sequence[str], python: str = ""
) -> None:
    """Requirements that contain a line end are left out, because they could add another field."""
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{python}"
    head += "".join(f"Provides-Extra: {normal(extra)}\n" for extra in extras)
    head += "".join(f"Requires-Dist: {need}\n" for need in requires if need.isprintable())
    info = f"{'-'.join(path.name.split('-')[:2])}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{info}/METADATA", head)
        wheel.writestr(f"{info}/WHEEL", _WHEEL)
        wheel.writestr(f"{info}/RECORD", "")
