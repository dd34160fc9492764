"""The user's settings of pip and uv, as variables of uv: where packages come from, through which proxy, by whose word.

They may hold passwords. They go to the program on standard input, into its memory alone.
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
# What a user may set for uv that means the same on another machine.
_OWN = re.compile(
    r"UV_(DEFAULT_INDEX|INDEX|INDEX_URL|EXTRA_INDEX_URL|INDEX_STRATEGY|INSECURE_HOST|HTTP_TIMEOUT|HTTP_RETRIES|NO_INDEX|"
    r"INDEX_\w+_(USERNAME|PASSWORD)|PYTHON_(INSTALL_MIRROR|DOWNLOADS_JSON_URL)|EXCLUDE_NEWER|PRERELEASE|NATIVE_TLS|SYSTEM_CERTS)"
)
# The login of an address.
LOGIN = re.compile(r"(https?://)[^/@\s]+@")
# pip takes the best version of all indexes; uv by itself the first index that has the name.
BEST = "unsafe-best-match"
_HERE = re.compile(r"file:|/|~|\./|localhost|https?://(localhost|127\.|\[::1\])")


@dataclass(frozen=True)
class Settings:
    """Variables for uv and pip, and the certificates to trust (empty: the image's). `left`: what works only here."""

    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    certificates: bytes = field(default=b"", repr=False)
    left: tuple[str, ...] = ()

    @property
    def public(self) -> list[str]:
        """Which index packages come from, without passwords."""
        names = (*_INDEXES, "UV_EXCLUDE_NEWER", "UV_PRERELEASE", "UV_INDEX_STRATEGY")
        return [drop_logins(self.variables.get(name, "")) for name in names]

    @property
    def named_indexes(self) -> list[tuple[str, str]]:
        """The indexes, as their names (often empty) and addresses."""
        words = [word for name in _INDEXES for word in self.variables.get(name, "").split()]
        named = [re.fullmatch(r"([A-Za-z0-9._-]+)=(.*)", word) for word in words]
        return [(match[1], match[2]) if match else ("", word) for match, word in zip(named, words, strict=True)]

    @property
    def indexes(self) -> list[str]:
        """The addresses of the indexes."""
        return [address for _, address in self.named_indexes]

    @property
    def is_local(self) -> bool:
        """Whether the user's own index is in files of this machine."""
        links = self.variables.get("UV_FIND_LINKS", "").split(",")
        return any(re.match(r"file:|/|~", address) for address in (*self.indexes, *filter(None, links)))

    def with_torch(self, build: str) -> Settings:
        """These, with which uv asks PyTorch's own index for torch and its sisters of that build: cpu, cu126."""
        return replace(self, variables={**self.variables, "UV_TORCH_BACKEND": build})

    def check_source(self, what: str, address: str) -> None:
        """Raise DeployError for a file of this machine that an index names, unless it is a local index of the user."""
        is_own = self.is_local and not re.match(r"(?!file:)\w+:", address)
        if address and not address.startswith(("https://", "http://")) and not is_own:
            raise DeployError(
                f"{what[:100]}: its index leads to {without_logins(address)[:300]}: a source at such an address is "
                "not fetched",
                "pip config list shows the index; a requirements file may set another one",
            )

    def hidden(self, text: str) -> str:
        """The text without passwords of these settings, or of any address in it."""
        for name, value in self.variables.items():
            secrets = [value] if name.endswith("PASSWORD") else re.findall(r"//(?:[^/:@\s]*:)?([^/@\s]+)@", value)
            for secret in filter(None, secrets):  # a variable may be set to nothing
                text = text.replace(secret, "***")
        return without_logins(text)


def without_logins(text: str) -> str:
    """The text without the passwords and tokens of its addresses."""
    return LOGIN.sub(r"\1***@", text)


def drop_logins(text: str) -> str:
    """The text with its addresses as they are without a login."""
    return LOGIN.sub(r"\1", text)


def of_user(environment: Mapping[str, str] = os.environ, home: Path | None = None, far: bool = True) -> Settings:
    """The settings of this user on this machine. Variables override files, as in pip and uv.

    far: for another machine or a container, which has no files and no ports of this one.
    """
    home = home or Path.home()
    pip, uv = _pip(environment, home), _uv(environment, home)
    variables, left = {**_as_uv(pip), **uv}, list[str]()
    own = {name: value for name, value in environment.items() if _OWN.fullmatch(name)}
    if "UV_INDEX_URL" in own:  # the older name: uv would take what a file says under the newer one
        variables.pop("UV_DEFAULT_INDEX", None)
    variables |= own
    for name in _PROXIES:
        if value := environment.get(name) or environment.get(name.lower()):
            variables[name] = variables[name.lower()] = value
    logins = _netrc(environment, home)
    for name in _INDEXES:
        words = variables.get(name, "").split()
        usable = [word for word in words if not (far and _HERE.match(word.partition("=")[2] or word))]
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
    """pip's settings by name: its files, the later ones first, then its variables. One without a value says nothing."""
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
    """The names and passwords that pip and uv take from a .netrc, by the server's name."""
    with suppress(OSError, ValueError, netrc.NetrcParseError):
        hosts = netrc.netrc(environment.get("NETRC") or home / ".netrc").hosts
        return {host: (login, password) for host, (login, _, password) in hosts.items() if login and password}
    return {}


def _with_login(index: str, logins: Mapping[str, tuple[str, str]]) -> str:
    """The index with the login of its server, where its address has none."""
    scheme, mark, rest = index.partition("://")
    host = re.match(r"[^/:@]+(?=[/:]|$)(?![^/]*@)", rest)
    login = logins.get(host[0], logins.get("default")) if mark and host else None
    return f"{scheme}://{':'.join(quote(word, '') for word in login)}@{rest}" if login and login[0] else index


def with_own_login(index: str) -> str:
    """An index that a folder names, with this user's login of its server.

    Not one that is for all servers, and none that would cross the network in the clear: the folder chose the address.
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
        elif url and not entry.get("explicit"):  # only what a project takes from it by its name is there
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
    """The authorities that this machine trusts, a company's among them, as `make image` hands them in."""
    named = [environment.get("PIP_CERT"), pip.get("cert"), *map(environment.get, _NAMED_CERTIFICATES), *_CERTIFICATES]
    for path in filter(None, named):
        try:
            if content := Path(os.path.expanduser(path)).read_bytes():
                return content
        except OSError:
            continue
    return b""
