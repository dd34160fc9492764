"""The user's pip and uv settings, as variables for uv: indexes, proxies, and trusted certificates.

They may contain passwords. They go to the program on standard input, and stay in its memory.
"""

from __future__ import annotations

import configparser
import netrc
import os
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ...core.errors import DeployError

_CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
_NAMED_CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_INDEXES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL")
# The uv settings of a user that mean the same on another machine.
_PORTABLE = re.compile(
    r"UV_(DEFAULT_INDEX|INDEX|INDEX_URL|EXTRA_INDEX_URL|INDEX_STRATEGY|INSECURE_HOST|HTTP_TIMEOUT|HTTP_RETRIES|NO_INDEX|"
    r"INDEX_\w+_(USERNAME|PASSWORD)|PYTHON_(INSTALL_MIRROR|DOWNLOADS_JSON_URL)|EXCLUDE_NEWER|PRERELEASE|NATIVE_TLS|SYSTEM_CERTS)"
)
# The login in an address.
LOGIN = re.compile(r"(https?://)[^/@\s]+@")
# pip takes the best version from all indexes; uv by default takes the first index that has the name.
BEST = "unsafe-best-match"
_LOCAL_ADDRESS = re.compile(r"file:|/|~|\./|localhost|https?://(localhost|127\.|\[::1\])")


@dataclass(frozen=True)
class Settings:
    """Variables for uv and pip, and trusted certificates (empty: the image's). `left_out`: indexes usable only here."""

    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    certificates: bytes = field(default=b"", repr=False)
    left_out: tuple[str, ...] = ()

    @property
    def public(self) -> list[str]:
        """Which indexes packages come from, without passwords."""
        names = (*_INDEXES, "UV_EXCLUDE_NEWER", "UV_PRERELEASE", "UV_INDEX_STRATEGY")
        return [drop_logins(self.variables.get(name, "")) for name in names]

    @property
    def named_indexes(self) -> list[tuple[str, str]]:
        """The indexes, as pairs of a name (often empty) and an address."""
        words = [word for name in _INDEXES for word in self.variables.get(name, "").split()]
        named = [re.fullmatch(r"([A-Za-z0-9._-]+)=(.*)", word) for word in words]
        return [(match[1], match[2]) if match else ("", word) for match, word in zip(named, words, strict=True)]

    @property
    def indexes(self) -> list[str]:
        """The addresses of the indexes."""
        return [address for _, address in self.named_indexes]

    @property
    def is_local(self) -> bool:
        """Whether the user's own index is in files on this machine."""
        links = self.variables.get("UV_FIND_LINKS", "").split(",")
        return any(re.match(r"file:|/|~", address) for address in (*self.indexes, *filter(None, links)))

    def with_torch(self, build: str) -> Settings:
        """These settings, but uv takes that build (cpu, cu126) of torch and its sisters from PyTorch's own index."""
        return replace(self, variables={**self.variables, "UV_TORCH_BACKEND": build})

    def check_source(self, what: str, address: str) -> None:
        """Raise DeployError if an index refers to a file on this machine, unless the user's own index is local."""
        is_own = self.is_local and not re.match(r"(?!file:)\w+:", address)
        if address and not address.startswith(("https://", "http://")) and not is_own:
            raise DeployError(
                f"{what[:100]}: its index leads to {without_logins(address)[:300]}: a source at such an address is "
                "not fetched",
                "pip config list shows the index; a requirements file may set another one",
            )

    def hidden(self, text: str) -> str:
        """The text without the passwords in these settings, or in any address."""
        for name, value in self.variables.items():
            secrets = [value] if name.endswith("PASSWORD") else re.findall(r"//(?:[^/:@\s]*:)?([^/@\s]+)@", value)
            for secret in filter(None, secrets):  # a variable may be set to nothing
                text = text.replace(secret, "***")
        return without_logins(text)


def without_logins(text: str) -> str:
    """The text with *** in place of the passwords and tokens in its addresses."""
    return LOGIN.sub(r"\1***@", text)


def drop_logins(text: str) -> str:
    """The text with each login removed from its addresses."""
    return LOGIN.sub(r"\1", text)


def of_user(environment: Mapping[str, str] = os.environ, home: Path | None = None, far: bool = True) -> Settings:
    """The settings of this user on this machine. Variables override files, as in pip and uv.

    far: the settings are for another machine or a container, which does not have this machine's files and ports.
    """
    home = home or Path.home()
    pip, uv = _pip(environment, home), _uv(environment, home)
    variables, left = {**_as_uv(pip), **uv}, list[str]()
    own = {name: value for name, value in environment.items() if _PORTABLE.fullmatch(name)}
    if "UV_INDEX_URL" in own:  # the older name: uv would prefer a file's value of the newer one
        variables.pop("UV_DEFAULT_INDEX", None)
    variables |= own
    for name in _PROXIES:
        if value := environment.get(name) or environment.get(name.lower()):
            variables[name] = variables[name.lower()] = value
    logins = _netrc(environment, home)
    for name in _INDEXES:
        words = variables.get(name, "").split()
        usable = [word for word in words if not (far and _LOCAL_ADDRESS.match(word.partition("=")[2] or word))]
        left += [word for word in words if word not in usable]
        variables.pop(name, None)
        variables |= {name: " ".join(_with_login(word, logins) for word in usable)} if usable else {}
    if not far and (links := pip.get("find-links")):
        variables["UV_FIND_LINKS"] = ",".join(links.split())
    if index := variables.get("UV_DEFAULT_INDEX") or variables.get("UV_INDEX_URL"):
        variables["PIP_INDEX_URL"] = index
    if more := variables.get("UV_INDEX") or variables.get("UV_EXTRA_INDEX_URL"):
        variables["PIP_EXTRA_INDEX_URL"] = " ".join(
            word.rpartition("=")[2] if "=http" in word else word for word in more.split()
        )
    if trusted := variables.get("UV_INSECURE_HOST"):
        variables["PIP_TRUSTED_HOST"] = trusted
    variables["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    return Settings(variables, _certificates(environment, pip), tuple(dict.fromkeys(left)))


def _pip(environment: Mapping[str, str], home: Path) -> dict[str, str]:
    """pip's settings by name: from its files, then its variables; a later one wins. Empty values do not count."""
    own = environment.get("XDG_CONFIG_HOME") or home / ".config"
    python = environment.get("VIRTUAL_ENV") or environment.get("CONDA_PREFIX")
    files = [Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf"), home / ".pip/pip.conf", Path(own, "pip/pip.conf")]
    files += [Path(python, "pip.conf")] if python else []
    if named := environment.get("PIP_CONFIG_FILE"):
        files = [] if named == os.devnull else [*files, Path(named)]
    parser = configparser.RawConfigParser(strict=False)
    for path in files:
        with suppress(configparser.Error, OSError, UnicodeDecodeError):
            parser.read_string(path.read_text(encoding="utf-8"), str(path))
    rows = [row for section in ("global", "install") if parser.has_section(section) for row in parser.items(section)]
    rows += [(name[4:].lower(), value) for name, value in environment.items() if name.startswith("PIP_")]
    return {name.replace("_", "-"): value for name, value in rows if value and value.strip()}


def _netrc(environment: Mapping[str, str], home: Path) -> Mapping[str, tuple[str, str]]:
    """The names and passwords that pip and uv read from a .netrc, by server."""
    with suppress(OSError, ValueError, netrc.NetrcParseError):
        hosts = netrc.netrc(environment.get("NETRC") or home / ".netrc").hosts
        return {host: (login, password) for host, (login, _, password) in hosts.items() if login and password}
    return {}


def _with_login(index: str, logins: Mapping[str, tuple[str, str]]) -> str:
    """The index with the login for its server, unless its address has a login."""
    scheme, mark, rest = index.partition("://")
    host = re.match(r"[^/:@]+(?=[/:]|$)(?![^/]*@)", rest)
    login = logins.get(host[0], logins.get("default")) if mark and host else None
    return f"{scheme}://{':'.join(quote(word, '') for word in login)}@{rest}" if login and login[0] else index


def with_own_login(index: str) -> str:
    """An index that a folder refers to, with this user's login for its server.

    A login for all servers is not used, and none is sent unencrypted, because the folder chose the address.
    """
    logins = _netrc(os.environ, Path.home()) if index.startswith("https://") else {}
    return _with_login(index, {**logins, "default": ("", "")})


def _as_uv(pip: Mapping[str, str]) -> dict[str, str]:
    names = {
        "index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "trusted-host": "UV_INSECURE_HOST",
        "default-timeout": "UV_HTTP_TIMEOUT", "timeout": "UV_HTTP_TIMEOUT",
    }  # fmt: skip
    variables = {names[name]: " ".join(value.split()) for name, value in pip.items() if name in names}
    if proxy := pip.get("proxy"):
        variables |= dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"), proxy)
    return {**variables, **({"UV_INDEX_STRATEGY": BEST} if "UV_INDEX" in variables else {})}


def _uv(environment: Mapping[str, str], home: Path) -> dict[str, str]:
    named = environment.get("UV_CONFIG_FILE")
    folder = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    variables = dict[str, str]()
    for path in [Path(named)] if named else [Path("/etc/uv/uv.toml"), folder / "uv/uv.toml"]:
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
            variables |= _of_table(table) | _of_table(table.get("pip", {}))
        except (OSError, ValueError, AttributeError, TypeError):
            continue
    return variables


def _of_table(table: Mapping[str, Any]) -> dict[str, str]:
    variables, extra = dict[str, str](), list[str]()
    for entry in table.get("index", ()) if isinstance(table.get("index"), list) else ():
        url, name = str(entry.get("url", "")), str(entry.get("name", ""))
        if entry.get("default"):
            variables["UV_DEFAULT_INDEX"] = url
        elif url and not entry.get("explicit"):  # an explicit index serves only packages that a project assigns to it
            extra.append(f"{name}={url}" if name else url)
    if isinstance(table.get("index-url"), str):
        variables["UV_DEFAULT_INDEX"] = table["index-url"]
    extra += [str(url) for url in table.get("extra-index-url", ())]
    hosts = [str(host) for host in table.get("allow-insecure-host", ())]
    variables |= {"UV_INDEX": " ".join(extra)} if extra else {}
    variables |= {"UV_INSECURE_HOST": " ".join(hosts)} if hosts else {}
    return variables | {
        f"UV_{name.upper().replace('-', '_')}": str(table[name])
        for name in ("index-strategy", "exclude-newer", "prerelease")
        if isinstance(table.get(name), str)
    }


def _certificates(environment: Mapping[str, str], pip: Mapping[str, str]) -> bytes:
    """The certificate authorities that this machine trusts, such as a company's, as `make image` passes them in."""
    named = [environment.get("PIP_CERT"), pip.get("cert"), *map(environment.get, _NAMED_CERTIFICATES), *_CERTIFICATES]
    for path in filter(None, named):
        try:
            if content := Path(os.path.expanduser(path)).read_bytes():
                return content
        except OSError:
            continue
    return b""
