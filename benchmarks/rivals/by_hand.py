"""What people do by hand with a project's settings and keys: `docker build` with its folder, `docker run --env-file`.

Everything is done on one host, over ssh, as a README of such a project says it.
"""

from __future__ import annotations

import re
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path

IMAGE = "by-hand:latest"
_DOCKERFILE = """FROM {base}
USER root
ARG PIP_EXTRA_INDEX_URL
ARG HTTP_PROXY
COPY . /workspace
WORKDIR /workspace
RUN pip install --no-deps -r requirements.txt || true
"""


def run(ssh: Sequence[str], folder: Path, base: str, build: Mapping[str, str], given: Mapping[str, str]) -> None:
    """Build the image on the host, run the script to its end, keep its output here. `build`: its build arguments.

    given: more variables of the container.
    """
    (folder / "Dockerfile").write_text(_DOCKERFILE.format(base=base))
    content = BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        tar.add(folder, ".")
    words = [word for name, value in build.items() for word in ("--build-arg", f"{name}={value}")]
    _on(ssh, ["docker", "build", "--network", "host", "--quiet", "--tag", IMAGE, *words, "-"], content.getvalue())
    # Docker's --env-file knows neither `export` nor values of several lines.
    lines = [line.removeprefix("export ") for line in (folder / ".env").read_text().splitlines()]
    simple = "".join(f"{line}\n" for line in lines if re.match(r"[A-Z_]+=", line))
    _on(ssh, ["sh", "-c", "'cat >.env'"], simple.encode())
    _on(ssh, ["sh", "-c", "'cat >account.json'"], (folder.parent / "account.json").read_bytes())
    more = [word for name, value in given.items() for word in ("--env", f"{name}={value}")]
    mount = ["--volume", "$HOME/account.json:/run/secrets/account.json"]
    start = ["docker", "run", "--detach", "--name", "by-hand", "--env-file", ".env", *more, *mount]
    _on(ssh, [*start, "--entrypoint", "python", IMAGE, "train.py", "--token", given["IN_ARGUMENT"]])
    _on(ssh, ["docker", "wait", "by-hand"])
    (folder.parent / "by-hand.log").write_bytes(_on(ssh, ["docker", "logs", "by-hand"]))


def clean(ssh: Sequence[str]) -> None:
    """Remove all of it from the host."""
    subprocess.run(
        [*ssh, f"docker rm -f by-hand; docker image rm -f {IMAGE}; rm -f .env account.json"],
        capture_output=True,
        check=False,
    )


def _on(ssh: Sequence[str], words: Sequence[str], data: bytes = b"") -> bytes:
    done = subprocess.run([*ssh, " ".join(words)], input=data, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{words[:4]}: {done.stderr.decode(errors='replace')[-2000:]}")
    return done.stdout + done.stderr
