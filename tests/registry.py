"""A registry for tests: it speaks the Distribution project's pull API over TLS, and serves a single image.

It counts the bytes that each address gets. It can limit the rate of all addresses together (one shared link), answer
only some addresses, and require tokens, which its own server gives to whoever has logged in.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import random
import ssl
import subprocess
import tarfile
import threading
import time
from collections import Counter
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

USER, PASSWORD = "ada", "planted-registry-secret"
_PIECE = 16 << 10
_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def layer_of(size: int) -> bytes:
    """A layer with this number of incompressible bytes, as a tar file."""
    packed, entry = io.BytesIO(), tarfile.TarInfo("noise")
    entry.size = size
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.addfile(entry, io.BytesIO(random.randbytes(size)))
    return packed.getvalue()


class Registry:
    """Serves at `address` until the end of the `with`. `size`: the incompressible bytes of the image."""

    def __init__(self, address: str, folder: Path, size: int) -> None:
        self.certificate, key = folder / "registry.pem", folder / "registry.key"
        named = f"subjectAltName=IP:{address},IP:127.0.0.1"
        line = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=registry"]
        line += ["-addext", named, "-keyout", str(key), "-out", str(self.certificate)]
        subprocess.run(line, check=True, capture_output=True)
        layer = layer_of(size)
        config = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {"Cmd": ["true"]},
                "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
            }
        ).encode()
        self.blobs = {_digest(layer): layer, _digest(config): config}
        kinds = "application/vnd.docker.container.image.v1+json", "application/vnd.docker.image.rootfs.diff.tar"
        about = [{"mediaType": kind, "size": len(data), "digest": _digest(data)}
                 for kind, data in zip(kinds, (config, layer), strict=True)]  # fmt: skip
        self.manifest = json.dumps(
            {"schemaVersion": 2, "mediaType": _MANIFEST, "config": about[0], "layers": about[1:]}
        ).encode()
        # The bytes of blobs that each address got, and the Authorization headers that came from it.
        self.given, self.authorized = Counter[str](), dict[str, set[str]]()
        self.rate: int | None = None
        self.is_private, self.only = False, set[str]()
        self.realm = ""
        self._tokens, self._lock, self._free_at = set[str](), threading.Lock(), 0.0
        self._server = ThreadingHTTPServer((address, 0), self._handler())
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.name = f"{address}:{self._server.server_address[1]}"
        self.image = f"{self.name}/team/image:1"
        self.realm = f"https://{self.name}/token"

    def __enter__(self) -> Registry:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait_for_room(self, size: int) -> None:
        """Wait until the shared link has carried this number of bytes more."""
        if self.rate:
            with self._lock:
                now = time.monotonic()
                self._free_at = max(now, self._free_at) + size / self.rate
                wait = self._free_at - now
            time.sleep(wait)

    def token(self, authorization: str) -> str:
        """A token for whoever has logged in; empty for others."""
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if authorization != f"Basic {login}":
            return ""
        token = f"token-{random.randbytes(8).hex()}"
        self._tokens.add(token)
        return token

    def admits(self, address: str, authorization: str) -> bool:
        """Whether a request with this authorization is answered."""
        return not self.is_private or authorization.removeprefix("Bearer ") in self._tokens

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self.do_GET()

            def do_GET(self) -> None:
                address, asked = self.client_address[0], urlsplit(self.path)
                authorization = self.headers.get("Authorization", "")
                registry.authorized.setdefault(address, set()).add(authorization)
                if asked.path == "/token":
                    scope = parse_qs(asked.query).get("scope", [""])[0]
                    token = registry.token(authorization) if scope == "repository:team/image:pull" else ""
                    self._answer(200 if token else 401, json.dumps({"token": token}).encode())
                elif registry.only and address not in registry.only:
                    self._answer(503, b"{}")
                elif not registry.admits(address, authorization):
                    asks = {"WWW-Authenticate": f'Bearer realm="{registry.realm}",service="registry"'}
                    self._answer(401, b'{"errors": [{"code": "UNAUTHORIZED", "message": "who asks?"}]}', asks)
                else:
                    self._give(asked.path.rpartition("/")[2], address)

            def _give(self, name: str, address: str) -> None:
                if name == "":
                    self._answer(200, b"{}")
                elif name in ("1", "latest", _digest(registry.manifest)):
                    about = {"Content-Type": _MANIFEST, "Docker-Content-Digest": _digest(registry.manifest)}
                    self._answer(200, registry.manifest, about)
                elif name in registry.blobs:
                    self._answer(200, registry.blobs[name], {"Docker-Content-Digest": name}, counted=address)
                else:
                    self._answer(404, b"{}")

            def _answer(self, code: int, body: bytes, about: dict[str, str] | None = None, counted: str = "") -> None:
                self.send_response(code)
                for header, value in {"Docker-Distribution-Api-Version": "registry/2.0", **(about or {})}.items():
                    self.send_header(header, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command == "HEAD":
                    return
                with suppress(OSError):
                    for at in range(0, len(body), _PIECE):
                        piece = body[at : at + _PIECE]
                        if counted:
                            registry.wait_for_room(len(piece))
                            registry.given[counted] += len(piece)
                        self.wfile.write(piece)

            def log_message(self, *_: object) -> None:
                """Print nothing: nobody reads these lines."""

        return Handler
