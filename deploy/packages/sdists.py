"""A source from an index, fetched here by its hash: hosts build it, and need no password of the index for it."""

from __future__ import annotations

import base64
import hashlib
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence

from ..core.errors import DeployError
from ..core.text import amount
from .settings import Settings, without_logins

MOST = 1 << 30  # bytes
_PIECE, _QUIET_S, _LONGEST_S = 1 << 20, 60.0, 1800.0
_LOCAL = re.compile(r"file:|/|~")


def fetch(url: str, sha256s: Sequence[str], settings: Settings) -> bytes:
    """The file at that address, which must have one of these hashes.

    A login of the settings goes to the index's own host alone, and no further with a redirect. Raises DeployError.
    """
    what, shown = urllib.parse.urlsplit(url), without_logins(url)
    if what.scheme not in ("https", "http") and not (what.scheme == "file" and _is_local(settings)):
        raise DeployError(
            f"{shown[:300]}: a source at such an address is not fetched", "pip config list names the index"
        )
    request = urllib.request.Request(what._replace(netloc=what.netloc.rpartition("@")[2]).geturl())
    if login := _login(what, settings):
        encoded = base64.b64encode(login.encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {encoded}")
    try:
        with _opener(what.hostname or "", settings).open(request, timeout=_QUIET_S) as answer:
            content = _read(answer, shown)
    except urllib.error.HTTPError as fault:
        raise DeployError(
            f"{shown[:300]}: the index answers {fault.code}", "pip config list names the index"
        ) from fault
    except (OSError, ValueError) as fault:
        why = getattr(fault, "reason", fault)
        raise DeployError(f"{shown[:300]}: it cannot be fetched: {why}", "docs/packages.md#no-index") from fault
    if hashlib.sha256(content).hexdigest() not in sha256s:
        raise DeployError(
            f"{shown[:300]}: it has another hash than the index says", "deploy again; ask who runs the index"
        )
    return content


def _read(answer: object, shown: str) -> bytes:
    """All of an answer, unless it is too large or too slow."""
    content, end = bytearray(), time.monotonic() + _LONGEST_S
    while piece := answer.read(_PIECE):  # type: ignore[attr-defined]
        content += piece
        if len(content) > MOST:
            raise DeployError(f"{shown[:300]}: it is more than {amount(MOST)}", "name a version that has a wheel")
        if time.monotonic() > end:
            raise DeployError(f"{shown[:300]}: it takes more than {_LONGEST_S / 60:.0f} minutes", "try again later")
    return bytes(content)


def _addresses(settings: Settings) -> list[tuple[str, str]]:
    """The indexes of the settings, as their names (often empty) and addresses."""
    words = [
        word
        for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL")
        for word in settings.variables.get(name, "").split()
    ]
    named = [re.fullmatch(r"([A-Za-z0-9._-]+)=(.*)", word) for word in words]
    return [(match[1], match[2]) if match else ("", word) for match, word in zip(named, words, strict=True)]


def _is_local(settings: Settings) -> bool:
    links = settings.variables.get("UV_FIND_LINKS", "").split(",")
    return any(
        _LOCAL.match(address) for address in (*(address for _, address in _addresses(settings)), *filter(None, links))
    )


def _login(what: urllib.parse.SplitResult, settings: Settings) -> str:
    """The login for an address: its own, else that of an index with the same scheme, host and port."""
    own = what.netloc.rpartition("@")[0]
    if own:
        return urllib.parse.unquote(own)
    for name, address in _addresses(settings):
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
    """What fetches with the user's proxies and certificates, and nothing of this process's own environment."""
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
        urllib.request.ProxyHandler(proxies), urllib.request.HTTPSHandler(context=context)
    )


def _certificates(settings: Settings) -> str:
    """The PEM texts alone: files of certificates have comments in any encoding."""
    text = settings.certificates.decode(errors="replace")
    return "\n".join(re.findall(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----", text))
