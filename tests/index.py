"""A package index for tests and benchmarks: a few packages, behind a password, on one address."""

from __future__ import annotations

import base64
import hashlib
import io
import ssl
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

LOGIN = "me:sesame-4715"
_WHEEL = "Wheel-Version: 1.0\nGenerator: lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
# A build backend that needs no tools, so a package with only source needs nothing else to build.
_BACKEND = """
import os, zipfile
def build_wheel(folder, settings=None, metadata=None):
    name = "{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        wheel.writestr("{name}.py", {code!r})
        info = "{name}-{version}.dist-info/"
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
        wheel.writestr(info + "WHEEL", {wheel!r})
        wheel.writestr(info + "RECORD", "")
    return name
"""
_PROJECT = '[project]\nname = "{name}"\nversion = "{version}"\n[build-system]\nrequires = []\n'
_PROJECT += 'build-backend = "backend"\nbackend-path = ["."]\n'


def wheel(
    name: str, version: str, code: str, needs: str = "", more: Mapping[str, str] | None = None
) -> tuple[str, bytes]:
    """A wheel with one module: its file name and contents.

    `needs` is its requirement, `more` has further files.
    """
    info, written = f"{name}-{version}.dist-info/", io.BytesIO()
    needed = f"Requires-Dist: {needs}\n" if needs else ""
    with zipfile.ZipFile(written, "w") as made:
        made.writestr(f"{name}.py", code)
        for path, text in (more or {}).items():
            made.writestr(path, text)
        made.writestr(f"{info}METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}")
        made.writestr(f"{info}WHEEL", _WHEEL)
        made.writestr(f"{info}RECORD", "")
    return f"{name}-{version}-py3-none-any.whl", written.getvalue()


def source(name: str, version: str, code: str, before: str = "", needs: str = "") -> tuple[str, bytes]:
    """The same package as a source archive only; `before` is code that its build runs first."""
    project = _PROJECT.format(name=name, version=version)
    files = {
        "pyproject.toml": project.replace("[build", f'dependencies = ["{needs}"]\n[build') if needs else project,
        "backend.py": before + _BACKEND.format(name=name, version=version, code=code, wheel=_WHEEL),
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
    }
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as tar:
        for path, text in files.items():
            entry = tarfile.TarInfo(f"{name}-{version}/{path}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return f"{name}-{version}.tar.gz", written.getvalue()


@contextmanager
def serve(
    address: str, files: Mapping[str, bytes], login: str = LOGIN, certificate: Path | None = None
) -> Iterator[str]:
    """Serve these files to whoever knows the login, if there is one; yields the index address, including the login.

    `certificate` makes it serve with TLS (tests/certificate.py). A file is also served at its plain path, so that a
    folder's files can be served.
    """
    allowed = "Basic " + base64.b64encode(login.encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.strip("/").split("/")[-1]
            if login and self.headers.get("Authorization") != allowed:
                return self.answer(401, b"")
            if self.path.startswith("/files/") and name in files:
                return self.answer(200, files[name])
            if self.path.partition("?")[0] in files:
                return self.answer(200, files[self.path.partition("?")[0]])
            if named := [file for file in files if file.split("-")[0] == name]:
                links = (f'<a href="/files/{f}#sha256={hashlib.sha256(files[f]).hexdigest()}">{f}</a>' for f in named)
                return self.answer(200, f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode())
            return self.answer(404, b"")

        do_HEAD = do_GET

        def answer(self, code: int, body: bytes) -> None:
            self.send_response(code)
            if code == 401:
                self.send_header("WWW-Authenticate", 'Basic realm="lab"')
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer((address, 0), Handler) as server:
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        scheme, who = "https" if certificate else "http", f"{login}@" if login else ""
        yield f"{scheme}://{who}{address}:{server.server_port}/simple"
        server.shutdown()
