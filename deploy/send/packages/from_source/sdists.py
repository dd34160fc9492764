"""Fetch files of an index by their hashes: sources for hosts to build, wheels for hosts that cannot reach an index.

So no host needs a password for the index.
"""

from __future__ import annotations

import base64
import hashlib
import mmap
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from ....core.errors import DeployError
from ....core.text import amount
from .. import addresses, resolve, uv
from ..base import Base
from ..exchange import Files
from ..settings import Settings, without_logins
from ..store import WHEEL
from .archives import file_of

MOST = 1 << 30  # bytes
_PIECE, _QUIET_S, _LONGEST_S = 1 << 20, 60.0, 1800.0


def fetch(url: str, sha256s: Sequence[str], settings: Settings) -> mmap.mmap:
    """The file at that address, which must have one of these hashes; if there are none, any content is accepted.

    A login from the settings is sent only to the index's own host, and not to the target of a redirect. No address may
    lead to this machine's own services. Raises DeployError.
    """
    what, shown = urllib.parse.urlsplit(url), without_logins(url)
    settings.check_source(what.path.rpartition("/")[2], url)
    if what.scheme != "file":
        addresses.check_reached(url)
    request = urllib.request.Request(what._replace(netloc=what.netloc.rpartition("@")[2]).geturl())
    if login := _login(what, settings):
        encoded = base64.b64encode(login.encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {encoded}")
    try:
        with _opener(what.hostname or "", settings).open(request, timeout=_QUIET_S) as answer:
            content, digest = _read(answer, shown)
    except urllib.error.HTTPError as fault:
        raise DeployError(
            f"{shown[:300]}: the index answers with code {fault.code}", "pip config list shows the index"
        ) from fault
    except (OSError, ValueError, HTTPException) as fault:
        why = getattr(fault, "reason", fault)
        raise DeployError(f"{shown[:300]}: it cannot be fetched: {why}", "muster docs offline-and-proxies") from fault
    if sha256s and digest not in sha256s:
        raise DeployError(
            f"{shown[:300]}: it does not have the hash that its index or your file gives",
            "deploy again; ask who runs it",
        )
    return content


def fetch_wheels(lines: Sequence[str], base: Base, settings: Settings, folder: Path) -> Files:
    """Each line's wheels that fit the base, as files of an order, for hosts without an index. Raises DeployError."""
    with TemporaryDirectory(prefix="muster-packages-") as name:
        tool = uv.Uv(folder, Path(name), settings, lambda words: None)
        offered = resolve.find_offers(lines, tool, base, Path(name)) if lines else []
    pinned = {digest for line in lines for digest in re.findall(r"--hash=sha256:([0-9a-f]{64})", line)}
    files = {}
    for offer in offered:
        for wheel in offer.wheels:
            file = file_of(wheel.address)
            if wheel.sha256 not in pinned:
                continue
            if not re.fullmatch(WHEEL, file):
                raise DeployError(f"{offer.name}: the index names its wheel {file[:100]!r}")
            files[f"wheels/{file}"] = fetch(wheel.address, [wheel.sha256], settings)
    return files


def _read(answer: object, shown: str) -> tuple[mmap.mmap, str]:
    """A response's content, never all in memory, and its SHA-256. Raises DeployError if it is too large or too slow."""
    digest, size, end = hashlib.sha256(), 0, time.monotonic() + _LONGEST_S
    with TemporaryFile() as file:
        while piece := answer.read(_PIECE):  # type: ignore[attr-defined]
            file.write(piece)
            digest.update(piece)
            size += len(piece)
            if size > MOST:
                raise DeployError(f"{shown[:300]}: it is more than {amount(MOST)}", "choose a version that has a wheel")
            if time.monotonic() > end:
                raise DeployError(f"{shown[:300]}: it takes more than {_LONGEST_S / 60:.0f} minutes", "try again later")
        file.flush()
        if not size or getattr(answer, "length", None):  # bytes that its header promised
            how = "was cut" if size else "is empty"
            raise DeployError(f"{shown[:300]}: it {how}", "try again; ask who runs that server")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), digest.hexdigest()


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects to addresses that no file may refer to, and to this machine."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        addresses.check_reached(newurl, req.full_url)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _login(what: urllib.parse.SplitResult, settings: Settings) -> str:
    """The login for an address: its own, otherwise that of an index with the same scheme, host and port."""
    own = what.netloc.rpartition("@")[0]
    if own:
        return urllib.parse.unquote(own)
    for name, address in settings.named_indexes:
        index = urllib.parse.urlsplit(address)
        if (index.scheme, index.hostname, index.port) != (what.scheme, what.hostname, what.port):
            continue
        if login := index.netloc.rpartition("@")[0]:
            return urllib.parse.unquote(login)
        prefix = f"UV_INDEX_{re.sub('[^A-Z0-9]', '_', name.upper())}_"
        user, password = (settings.variables.get(f"{prefix}{word}", "") for word in ("USERNAME", "PASSWORD"))
        if name and (user or password):
            return f"{user}:{password}"
    return ""


def _opener(host: str, settings: Settings) -> urllib.request.OpenerDirector:
    """An opener with the user's proxies and certificates, and nothing from this process's own environment."""
    variables = settings.variables
    proxies = {
        scheme: proxy
        for scheme in ("http", "https")
        if (proxy := variables.get(f"{scheme.upper()}_PROXY") or variables.get("ALL_PROXY"))
    }
    without = variables.get("NO_PROXY", "").replace(" ", "")
    if without and urllib.request.proxy_bypass_environment(host, {"no": without}):  # type: ignore[attr-defined]
        proxies = {}
    context = ssl.create_default_context(cadata=_certificates(settings) or None)
    if host in {word.partition(":")[0] for word in variables.get("UV_INSECURE_HOST", "").split()}:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return urllib.request.build_opener(
        _Redirects(), urllib.request.ProxyHandler(proxies), urllib.request.HTTPSHandler(context=context)
    )


def _certificates(settings: Settings) -> str:
    """Only the PEM texts: certificate files may contain comments in any encoding."""
    text = settings.certificates.decode(errors="replace")
    return "\n".join(re.findall(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----", text))
