"""The uv that installs packages: one version, each file of it pinned by its hash."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from ..core.errors import DeployError

PINS = Path(__file__).with_name("uv.txt").read_text()
VERSION = re.search(r"^uv==([0-9.]+)", PINS, re.MULTILINE)[1]  # type: ignore[index]
_TAGS = {"x86_64": "manylinux2014_x86_64", "aarch64": "manylinux2014_aarch64"}


def program_for(host: str, machine: str) -> bytes:
    """uv for a host's processor, from the index that this machine reaches. Raises DeployError."""
    tag = _TAGS.get(machine)
    if tag is None:
        raise DeployError(f"{host}: there is no uv for its processor ({machine})", "--requirements no; use an image")
    with TemporaryDirectory(prefix="muster-uv-") as name:
        pins, target = Path(name) / "uv.txt", Path(name) / "uv"
        pins.write_text(PINS)
        words = ["install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--platform", tag]
        command = [sys.executable, "-P", "-m", "pip", *words, "--target", str(target), "--requirement", str(pins)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip() or "no output").splitlines()[-1]
            raise DeployError(f"neither {host} nor this machine gets uv from an index: {last}", "pip config list")
        return (target / "bin" / "uv").read_bytes()
