"""Wheels of nothing but a name, a version and needs: uv resolves with them in the place of what is elsewhere.

One stands for a package of the base image, or for one that each host builds for itself.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

from .base import Base
from .inside.tools import comes_along, normal, read_name

_WHEEL = "Wheel-Version: 1.0\nGenerator: muster\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def of_base(folder: Path, base: Base) -> None:
    """A stub for each package of the base. What torch's own build brings along is needed only if the base has it."""
    own = set(base.torch)
    for package in base.packages:
        needs = [need for need in package.requires if not comes_along(need) or read_name(need) in own]
        write(folder, package.name, version(package.version), needs, package.extras)


def version(text: str) -> str:
    """A version that no index has, and that means the same."""
    return text if "+" in text else f"{text}+base"


def write(folder: Path, name: str, version: str, requires: Sequence[str], extras: Sequence[str]) -> Path:
    """One stub. A need, an extra or a name with a line end would be another field: it is left out."""
    plain = re.sub(r"[-_.]+", "_", name)
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    head += "".join(f"Provides-Extra: {normal(extra)}\n" for extra in extras)
    head += "".join(f"Requires-Dist: {need}\n" for need in requires if need.isprintable())
    path, info = folder / f"{plain}-{version}-py3-none-any.whl", f"{plain}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{info}/METADATA", head)
        wheel.writestr(f"{info}/WHEEL", _WHEEL)
        wheel.writestr(f"{info}/RECORD", "")
    return path
