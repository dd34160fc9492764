"""Access to a private registry: hosts get a token for one image, and never this machine's login.

The token can only pull that image, for a few minutes, and an engine does not store it. Sources: the file format of
`docker login` and its helpers (docker/cli, cli/config/configfile); the Distribution project's "Token Authentication".
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import urllib.request
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from ...core import fields
from ...core.errors import BadAnswer

_HUB, _HUB_KEY, _HUB_SERVER = "docker.io", "https://index.docker.io/v1/", "registry-1.docker.io"
_HELPER = fields.text(100, r"[A-Za-z0-9._-]+")
_ENTRY = fields.record({}, {"auth": fields.text(1 << 16), "identitytoken": fields.text(1 << 16)})
_CONFIG = fields.record(
    {},
    {
        "auths": fields.table(fields.text(500), _ENTRY),
        "credsStore": _HELPER,
        "credHelpers": fields.table(fields.text(500), _HELPER),
    },
)
_SECRET = fields.record({"Username": fields.text(1000), "Secret": fields.text(1 << 16)})
_ANSWER = fields.record({}, {"token": fields.text(1 << 16), "access_token": fields.text(1 << 16)})
_HELPER_S, _ASK_S, _MOST = 30.0, 10.0, 1 << 17
# The user name that a helper gives if its secret is a refresh token, from which other tokens are made.
_REFRESH = "<token>"
_DENIED = re.compile(r"denied|unauthorized|authentication required|no basic auth", re.IGNORECASE)
_FIELD = re.compile(r'(realm|service)="([^"]*)"')
_REGISTRY = re.compile(r"(localhost|[^/]*[.:][^/]*)/")
# Any other character in a name could make the request ask for more than to pull this image.
_REPOSITORY = re.compile(r"([a-z0-9._/-]+)(?::[A-Za-z0-9._-]+)?(?:@[a-z0-9:]+)?")


def is_refusal(words: str) -> bool:
    """Whether an engine's words report that the registry requires a login."""
    return bool(_DENIED.search(words))


def registry_of(reference: str) -> str:
    """The registry in an image's name: `ghcr.io` in `ghcr.io/team/image:tag`; `docker.io` if the name has none."""
    named = _REGISTRY.match(reference)
    return named[1] if named else _HUB


def token_for(reference: str) -> str:
    """The header X-Registry-Auth, with a token made from this machine's login that can pull this image.

    Empty if there is no login on this machine, the registry gives no such tokens, or this machine cannot reach it.
    """
    registry = registry_of(reference)
    key, server = (_HUB_KEY, _HUB_SERVER) if registry == _HUB else (registry, registry)
    name = _REPOSITORY.fullmatch(reference.removeprefix(f"{registry}/"))
    with suppress(OSError, BadAnswer, subprocess.SubprocessError, ValueError, HTTPException):
        if name and (login := _login(key)):
            repository = name[1] if "/" in name[1] or registry != _HUB else f"library/{name[1]}"
            token = _ask_for_token(server, repository, *login)
            return base64.urlsafe_b64encode(json.dumps({"registrytoken": token}).encode()).decode() if token else ""
    return ""


def _login(key: str) -> tuple[str, str] | None:
    """What `docker login` stored for a registry: a name and a password, or _REFRESH and a token."""
    folder = Path(os.environ.get("DOCKER_CONFIG", "") or Path.home() / ".docker")
    config = _CONFIG(fields.document((folder / "config.json").read_bytes(), "Docker's settings"), "")
    helper = config.get("credHelpers", {}).get(key) or config.get("credsStore")
    if helper:
        command = [f"docker-credential-{helper}", "get"]
        done = subprocess.run(command, input=key.encode(), capture_output=True, timeout=_HELPER_S, check=True)
        entry = _SECRET(fields.document(done.stdout, helper), helper)
        return entry["Username"], entry["Secret"]
    entry = config.get("auths", {}).get(key, {})
    if "identitytoken" in entry:
        return _REFRESH, entry["identitytoken"]
    name, _, password = base64.b64decode(entry.get("auth", "")).decode().partition(":")
    return (name, password) if name else None


def _ask_for_token(server: str, repository: str, name: str, secret: str) -> str:
    """Get a token to pull from this repository; empty if the registry does not refer to a token server."""
    realm, service = _server_of_tokens(f"https://{server}/v2/{repository}/manifests/latest")
    # A login is never sent in clear text, whatever the registry says.
    if urlsplit(realm).scheme != "https":
        return ""
    wanted = {"service": service, "scope": f"repository:{repository}:pull"}
    if name == _REFRESH:
        form = {**wanted, "grant_type": "refresh_token", "client_id": "muster", "refresh_token": secret}
        request = urllib.request.Request(realm, urlencode(form).encode())
    else:
        basic = base64.b64encode(f"{name}:{secret}".encode()).decode()
        request = urllib.request.Request(f"{realm}?{urlencode(wanted)}", headers={"Authorization": f"Basic {basic}"})
    with _open(request) as answer:
        given = _ANSWER(fields.document(answer.read(_MOST), "a token"), "a token")
    return str(given.get("token") or given.get("access_token") or "")


def _server_of_tokens(url: str) -> tuple[str, str]:
    """The token server to which a registry refers unknown clients (empty: none), and the registry's name there."""
    with _open(urllib.request.Request(url)) as answer:
        asked = dict(_FIELD.findall(answer.headers.get("WWW-Authenticate", "")))
    return asked.get("realm", ""), asked.get("service", "")


def _open(request: urllib.request.Request) -> Any:
    """The response, whatever its status. No redirects: urllib would send the Authorization header to their target."""
    return urllib.request.build_opener(_NoRedirects).open(request, timeout=_ASK_S)


class _NoRedirects(urllib.request.HTTPErrorProcessor):
    """Returns every response as it is: a status is not an error, and a redirect is not followed."""

    def http_response(self, request: urllib.request.Request, response: Any) -> Any:
        """Return the response unchanged."""
        return response

    https_response = http_response
