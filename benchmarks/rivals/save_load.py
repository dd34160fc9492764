"""`docker save IMAGE | ssh HOST docker load`, to all hosts in parallel: the usual way without a registry."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence


def save_load(image: str, hosts: Sequence[Sequence[str]]) -> float:
    """Seconds until the last host has the image. `hosts` are ssh commands. Raises RuntimeError if one host failed."""
    began = time.monotonic()
    pairs = []
    for ssh in hosts:
        save = subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE)
        load = subprocess.Popen(
            [*ssh, "docker", "load", "--quiet"],
            stdin=save.stdout,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert save.stdout is not None
        save.stdout.close()  # so that only `load` reads it, and `save` ends when `load` does
        pairs.append((save, load))
    errors = [load.communicate()[1] for _, load in pairs]
    if any(save.wait() or load.returncode for save, load in pairs):
        raise RuntimeError(f"docker save | ssh docker load failed: {' '.join(errors).strip()}")
    return time.monotonic() - began
