"""Sends orders to the program that builds and installs packages, on this machine's engine, as Muster does on a host.

host = Host(image, home)
built = host.build(source(backend))              # what the build reports about its wheel; raises Failed with its words
host.install(built); host.run("import odd")      # runs a container with these packages; returns what it prints
host.everything()                                # all files in this host's volumes, by path, with their hashes
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deploy.send.packages import commands, uv

PROJECT = '[project]\nname = "{name}"\nversion = "1.0"\n[build-system]\nrequires = {requires}\n'
PROJECT += 'build-backend = "backend"\nbackend-path = ["."]\n'
# A build backend that first runs the code of a test, then makes a wheel from `FILES`.
BACKEND = """
import json, os, sys, zipfile
FILES = {{"{name}.py": "VALUE = 1"}}
INFO = "{name}-1.0.dist-info/"
FILES[INFO + "METADATA"] = "Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.0\\n"
FILES[INFO + "WHEEL"] = "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
FILES[INFO + "RECORD"] = ""
def build_wheel(folder, settings=None, metadata=None):
    name = "{name}-1.0-py3-none-any.whl"
{body}
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        for path, text in FILES.items():
            wheel.writestr(path, text)
    return name
"""


class Failed(Exception):
    """An order failed; the message has the exit code, the words that came back, and standard error."""


def source(body: str = "", name: str = "odd", requires: str = "[]", more: str = "", **files: str) -> bytes:
    """A source archive whose build first runs `body`. `more`: more backend code; `files`: more source files."""
    indented = "".join(f"    {line}\n" for line in body.splitlines())
    texts = {
        "pyproject.toml": PROJECT.format(name=name, requires=requires),
        "backend.py": BACKEND.format(name=name, body=indented) + more,
        **files,
    }
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as tar:
        for path, text in texts.items():
            entry = tarfile.TarInfo(f"{name}-1.0/{path}")
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))
    return written.getvalue()


class Host:
    """An engine with an image, and a user with volumes of their own."""

    def __init__(self, image: str, home: Path, variables: dict[str, str] | None = None) -> None:
        self.image, self.home, self.variables = image, home, variables or {}
        self.user, self.uid = f"test-{secrets.token_hex(4)}", 200_000 + secrets.randbelow(1_000_000)
        self.said: list[str] = []
        # `docker run` options that a test replaces, each with its replacement.
        self.instead: dict[tuple[str, str], tuple[str, str]] = {}

    def box(self, scratch: str = "", image: str = "") -> commands.Box:
        """The image, user, base and limits with which orders run."""
        there = subprocess.run(
            commands.list_packages(image or self.image, self.user), capture_output=True, text=True, check=True
        ).stdout
        row = json.loads(there.splitlines()[0])
        base = commands.base(row["layers"], dict(line.partition("=")[::2] for line in row["environment"]))
        limits = ("--memory", "1g", "--pids-limit", "32768")
        return commands.Box(image or self.image, self.user, self.uid, base, scratch, limits)

    def build(self, *tars: bytes, keep: tuple[str, ...] = (), scratch: str = "", image: str = "", **more: Any) -> Any:
        """Build these sources; returns the row of a single one, or a list of rows for several."""
        keys = [hashlib.sha256(data).hexdigest()[:32] for data in tars]
        sources = [{"key": key, "kind": "git", "tar": f"git-{n}.tar", **more} for n, key in enumerate(keys)]
        order = {"mode": "build", "sources": sources, "keep": dict(zip(keys, keep, strict=False))}
        box = self.box(scratch or secrets.token_hex(16), image)
        done = self.do(commands.build(box), order, {f"git-{n}.tar": data for n, data in enumerate(tars)})
        rows = [{**row, "scratch": box.scratch} for row in done["built"]]
        return rows[0] if len(rows) == 1 else rows

    def install(self, *built: dict[str, Any], lock: tuple[str, ...] = (), image: str = "", **files: bytes) -> Any:
        """Install what was built, and lines of a lock, into a new volume; the answer's `volume` is its name."""
        box = self.box(built[0]["scratch"] if built else "", image)
        volume = f"muster-packages-{self.uid}-{secrets.token_hex(8)}"
        order = {"mode": "install", "lock": list(lock), "built": list(built)}
        named = {f"wheels/{name}": data for name, data in files.items()}
        done = self.do(commands.install(box, volume, "test", secrets.token_hex(8)), order, named)
        return {**done, "volume": volume}

    def do(
        self,
        argv: tuple[str, ...],
        order: dict[str, Any],
        files: dict[str, bytes],
        until: Callable[[], bool] | None = None,
    ) -> Any:
        """Carry out an order. Once `until` is true, the order's input is closed. Raises Failed."""
        texts = {"uv.txt": uv.PINS.encode(), **self._certificates(), **files}
        whole = {
            **commands.PLACES, "owner": [self.uid, self.uid], "uv": uv.VERSION, "variables": self.variables,
            "paths": dict.fromkeys(("SSL_CERT_FILE", "PIP_CERT"), "ca") if "ca" in texts else {},
            "files": [(name, len(data)) for name, data in texts.items()], **order,
        }  # fmt: skip
        words = list(argv)
        for (first, second), others in self.instead.items():
            at = next(n for n, word in enumerate(words) if (word, *words[n + 1 : n + 2]) == (first, second))
            words[at : at + 2] = others
        child = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "HOME": str(self.home)},
        )  # fmt: skip
        assert child.stdin
        assert child.stdout
        assert child.stderr
        content = commands.program() + json.dumps(whole).encode() + b"\n" + b"".join(texts.values())
        feed = threading.Thread(target=_feed, args=(child.stdin, content), daemon=True)
        feed.start()
        done = failed = None
        if until:
            while not until():
                time.sleep(0.1)
            child.stdin.close()
        for line in child.stdout:
            self.said.append(line.decode(errors="replace"))
            row = json.loads(line) if line.startswith(b"{") else {}
            done, failed = row.get("done", done), row.get("words", failed)
            if "done" in row or "failed" in row:
                feed.join()
                child.stdin.close()
        errors = child.stderr.read().decode(errors="replace")
        code = child.wait(300)
        if code or failed is not None or done is None:
            raise Failed(f"{code}: {failed}\n{errors}")
        return done

    def run(self, volume: str, text: str, *options: str) -> str:
        """What a run's container with these packages prints when it executes `text`."""
        words = ["docker", "run", "--rm", "--user", f"{self.uid}:{self.uid}", *commands.mount(volume), *options]
        words += ["--entrypoint", f"{commands.TARGET}/bin/python", self.image, "-c", text]
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=300).stdout

    def volumes(self) -> list[str]:
        """The names of all volumes of this user."""
        words = ["docker", "volume", "ls", "--quiet", "--filter", f"label=muster.user={self.user}"]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()

    def everything(self) -> dict[str, str]:
        """Each file in this user's tools and cache, with its hash and its mode."""
        names = [name for name in self.volumes() if name.startswith("muster-cache-")]
        mounts = [
            word for name in names for word in ("--mount", f"type=volume,source={name},target=/v/{name},readonly")
        ]
        text = "cd /v && find . -type f -exec sha256sum {} + ; find . -printf '%m %u %p\\n'"
        words = ["docker", "run", "--rm", "--user", "0:0", *mounts, "--entrypoint", "sh", self.image, "-c", text]
        out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        return {line.split(" ", 2)[-1].strip(): line for line in sorted(out.splitlines())}

    def close(self) -> None:
        """Remove this host's volumes."""
        subprocess.run(["docker", "volume", "rm", "--force", *self.volumes()], capture_output=True, check=False)

    @staticmethod
    def _certificates() -> dict[str, bytes]:
        path = os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt"
        return {"ca": Path(path).read_bytes()} if os.path.exists(path) else {}


def _feed(pipe: Any, content: bytes) -> None:
    try:
        pipe.write(content)
        pipe.flush()
    except BrokenPipeError:
        return
