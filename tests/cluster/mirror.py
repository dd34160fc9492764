"""A package index for hosts that reach no other index: serves over HTTP the folders that this machine's pip uses.

It also serves this machine's Python, in the form in which uv downloads a Python. It starts in any folder.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import copyfileobj
from tempfile import mkdtemp

from deploy.send.packages.uv import PYTHON

_METADATA, _METADATA_ATTR = re.compile(r"[^/]+\.dist-info/METADATA"), ' data-core-metadata="true"'
_LINK = re.compile(r'href="([^"#]+)#sha256=([0-9a-f]{64})"')


@cache
def _folders() -> tuple[list[Path], list[Path]]:
    """The indexes that are folders on this machine, and the folders of wheels."""
    # The tests set XDG_CONFIG_HOME to their own folder, in which pip would find no settings.
    own = {name: value for name, value in os.environ.items() if name != "XDG_CONFIG_HOME"}
    line = [sys.executable, "-m", "pip", "config", "list"]
    words = subprocess.run(line, env=own, capture_output=True, text=True).stdout
    indexes = [Path(path) for path in re.findall(r"file://([^\s']+)", words)]
    lines = (line for line in words.splitlines() if "find-links" in line)
    links = [Path(path) for line in lines for path in re.findall(r"/[^\s']+", line)]
    return indexes, links


@cache
def files_of(name: str) -> dict[str, tuple[Path, str]]:
    """The files of a package: by file name, the path and the SHA-256."""
    indexes, links = _folders()
    files = {}
    for index in indexes:
        page = index / name / "index.html"
        for link, digest in _LINK.findall(page.read_text()) if page.exists() else ():
            files[Path(link).name] = ((page.parent / link).resolve(), digest)
    for folder in links:
        for wheel in folder.glob("*.whl"):
            if re.sub(r"[-_.]+", "-", wheel.name.split("-")[0]).lower() == name:
                files[wheel.name] = (wheel, hashlib.sha256(wheel.read_bytes()).hexdigest())
    # pip may be able to download a package that no folder has, as a source or a wheel.
    if not files and re.fullmatch("[a-z0-9-]+", name):
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", mkdtemp(), name]
        subprocess.run(words, capture_output=True)
        files = {p.name: (p, hashlib.sha256(p.read_bytes()).hexdigest()) for p in Path(words[-2]).iterdir()}
    return files


@cache
def metadata(path: Path) -> bytes:
    """A wheel's metadata. An index serves it next to the wheel, so that no client fetches a wheel only for it."""
    with zipfile.ZipFile(path) as wheel:
        return wheel.read(next(name for name in wheel.namelist() if _METADATA.fullmatch(name)))


# Where a program looks for Python's libraries, relative to its own folder.
_LIBRARY_PATH = b"$ORIGIN/../lib"
_LEFT_OUT = re.compile(r"/(site-packages|test|config-[^/]*|idlelib|__pycache__)(/|$)")


@cache
def python_archive() -> bytes:
    """This machine's Python as an archive such as uv downloads: its files below `python`."""
    home, version = Path(sys.base_prefix), f"python{sys.version_info[0]}.{sys.version_info[1]}"
    path, packed = f"{home}/lib".encode() + b"\0", io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:

        def add(file: Path, name: str) -> None:
            data = file.read_bytes().replace(path, _LIBRARY_PATH.ljust(len(path), b"\0"))
            entry = tarfile.TarInfo(f"python/{name}")
            entry.size, entry.mode = len(data), 0o755
            archive.addfile(entry, io.BytesIO(data))

        add((home / "bin" / version).resolve(), f"bin/{version}")
        wanted = f"python{PYTHON.rpartition('.')[0]}"  # uv looks for the names of the version that it requested
        for name in {"bin/python", "bin/python3", f"bin/{wanted}", f"lib/{wanted}"} - {
            f"bin/{version}",
            f"lib/{version}",
        }:
            entry = tarfile.TarInfo(f"python/{name}")
            entry.type, entry.linkname = tarfile.SYMTYPE, version
            archive.addfile(entry)
        for file in [*home.glob("lib/libpython3*.so*"), *(home / "lib" / version).rglob("*")]:
            name = str(file.relative_to(home))
            if file.is_file() and not _LEFT_OUT.search(name):
                add(file, name)
        entry = tarfile.TarInfo(f"python/lib/{version}/site-packages")
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(entry)
    return packed.getvalue()


def _downloads(host: str) -> bytes:
    """The list of Pythons that uv reads: this machine's Python, as the version that hosts get."""
    major, minor, patch = map(int, PYTHON.split("."))
    key = f"cpython-{PYTHON}-linux-{platform.machine()}-gnu"
    about = {"name": "cpython", "arch": {"family": platform.machine(), "variant": None}, "os": "linux", "libc": "gnu"}
    about |= {"major": major, "minor": minor, "patch": patch, "prerelease": "", "variant": None, "build": "1"}
    where = {"url": f"http://{host}/python/cpython.tar.gz", "sha256": hashlib.sha256(python_archive()).hexdigest()}
    return json.dumps({key: {**about, **where}}).encode()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        kind, name, *rest = [*self.path.strip("/").split("/"), "", ""]
        if kind == "python":
            data = python_archive() if name == "cpython.tar.gz" else _downloads(self.headers["Host"])
            self._begin(len(data))
            self.wfile.write(data)
            return
        files = files_of(name)
        if kind == "simple" and files:
            rows = (
                f'<a href="/files/{name}/{file}#sha256={digest}"{_METADATA_ATTR * file.endswith(".whl")}>{file}</a>'
                for file, (_, digest) in files.items()
            )
            page = "".join(rows).encode()
            self._begin(len(page))
            self.wfile.write(page)
        elif kind == "files" and (wheel := files.get(rest[0].removesuffix(".metadata"))) and rest[0] not in files:
            data = metadata(wheel[0])
            self._begin(len(data))
            self.wfile.write(data)
        elif kind == "files" and rest[0] in files:
            path = files[rest[0]][0]
            self._begin(path.stat().st_size)
            with path.open("rb") as file, suppress(BrokenPipeError):
                copyfileobj(file, self.wfile)
        else:
            self.send_error(404)

    def _begin(self, size):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(size))
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *_):
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 100  # several hosts request many packages at the same time


@contextmanager
def serve(address: str, port: int = 0) -> Iterator[str]:
    """Serve the index; yields its address."""
    with _Server((address, port), _Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{address}:{server.server_port}/simple"
        server.shutdown()
