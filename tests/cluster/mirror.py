"""An index of packages for hosts that reach no other: what this machine's own pip has in folders, over HTTP."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import copyfileobj
from tempfile import mkdtemp

_LINK = re.compile(r'href="([^"#]+)#sha256=([0-9a-f]{64})"')


@cache
def _folders() -> tuple[list[Path], list[Path]]:
    """The indexes that are folders here, and the folders of wheels."""
    # The tests have a home of their own for settings, where pip finds none.
    own = {name: value for name, value in os.environ.items() if name != "XDG_CONFIG_HOME"}
    line = [sys.executable, "-m", "pip", "config", "list"]
    words = subprocess.run(line, env=own, capture_output=True, text=True).stdout
    indexes = [Path(path) for path in re.findall(r"file://([^\s']+)", words)]
    links = [
        Path(path) for line in words.splitlines() if "find-links" in line for path in re.findall(r"'(/[^']+)'", line)
    ]
    return indexes, links


@cache
def files_of(name: str) -> dict[str, tuple[Path, str]]:
    """The files of a package: by their names, where each is, and its SHA-256."""
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
    # What no folder has, pip may reach: a source, or a wheel.
    if not files and re.fullmatch("[a-z0-9-]+", name):
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", mkdtemp(), name]
        subprocess.run(words, capture_output=True)
        files = {p.name: (p, hashlib.sha256(p.read_bytes()).hexdigest()) for p in Path(words[-2]).iterdir()}
    return files


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        kind, name, *rest = [*self.path.strip("/").split("/"), "", ""]
        files = files_of(name)
        if kind == "simple" and files:
            rows = (f'<a href="/files/{name}/{file}#sha256={digest}">{file}</a>' for file, (_, digest) in files.items())
            page = "".join(rows).encode()
            self._begin(len(page))
            self.wfile.write(page)
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
        """Nothing."""


@contextmanager
def serve(address: str, port: int = 0) -> Iterator[str]:
    """The address of the index, while it is served."""
    with ThreadingHTTPServer((address, port), _Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{address}:{server.server_port}/simple"
        server.shutdown()
