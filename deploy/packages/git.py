"""Sources that requirements name in git repositories, fetched here with the user's own git: its keys stay here."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlsplit, urlunsplit

from ..core.errors import DeployError
from .requirements import SOURCE
from .settings import without_logins

_PATIENCE_S = 900.0
_MOST_SOURCES, _HERE = 100, "git+file:"
# Where a package says what it needs.
NAMES = ("pyproject.toml", "setup.cfg", "setup.py", "requirements.txt")
_USER, _PASSWORD = "MUSTER_GIT_USER", "MUSTER_GIT_PASSWORD"
_HELPER = f'!printf \'username=%s\\npassword=%s\\n\' "${_USER}" "${_PASSWORD}"; :'


def split(word: str) -> tuple[str, str]:
    """Address and revision of `git+https://HOST/PATH@REVISION#...`; without a revision, HEAD."""
    address = urlsplit(word.removeprefix("git+"))
    path, _, revision = address.path.rpartition("@") if "@" in address.path else (address.path, "", "HEAD")
    return urlunsplit((address.scheme, address.netloc, path, "", "")), revision


def fetch(word: str) -> bytes:
    """The files of a `git+https://...@REVISION`, as a tar file without the history. Raises DeployError, git's words."""
    url, revision = split(word)
    shown = without_logins(word)
    if revision.startswith("-"):
        raise DeployError(f"{shown}: not a revision: {revision}")
    with TemporaryDirectory(prefix="muster-git-") as name:
        git = _Git(Path(name), shown, url)
        git.ask("init", "--quiet", "--bare")
        return git.ask("archive", "--format", "tar", _fetched(git, revision))


def fetch_all(words: Sequence[str], tell: Callable[[str], None]) -> dict[str, bytes]:
    """The files of these sources, and of those that they name themselves, by source. Raises DeployError."""
    fetched: dict[str, bytes] = {}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word in fetched:
            continue
        if len(fetched) == _MOST_SOURCES:
            raise DeployError(f"more than {_MOST_SOURCES} git sources, each named by another one", "pin them yourself")
        tell(f"fetching {without_logins(word)} here")
        fetched[word] = fetch(word)
        # Somebody else's package names no repository of this machine.
        waiting += [more for more in _named(fetched[word]) if word.startswith(_HERE) or not more.startswith(_HERE)]
    return fetched


def _named(files: bytes) -> list[str]:
    """The git sources that a fetched package needs, as its own files say."""
    with tarfile.open(fileobj=io.BytesIO(files)) as tar:
        texts = [
            tar.extractfile(entry).read(1 << 20)  # type: ignore[union-attr]
            for entry in tar
            if entry.isreg() and entry.name.rpartition("/")[2] in NAMES and entry.name.count("/") < 3
        ]
    return [word for text in texts for word in SOURCE.findall(text.decode(errors="replace"))]


def _fetched(git: _Git, revision: str) -> str:
    """What the revision is called here, once it is fetched."""
    for depth in (("--depth", "1"), ()):  # the simplest servers give no single commit
        try:
            git.ask("fetch", "--quiet", *depth, "--", git.url, revision)
        except DeployError:
            continue
        return "FETCH_HEAD"
    git.ask("fetch", "--quiet", "--", git.url, "+refs/*:refs/theirs/*")  # it is a short commit
    return git.ask("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").decode().strip()


class _Git:
    """git on this machine, in a folder. `shown`: the source as messages name it; `url`: without its password."""

    def __init__(self, folder: Path, shown: str, url: str) -> None:
        self._folder, self._shown = folder, shown
        self.url, self._login = _login(url)

    def ask(self, *words: str) -> bytes:
        """What a command prints. Raises DeployError."""
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("GIT_DIR")},
            **self._login,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_SSH_COMMAND": os.environ.get("GIT_SSH_COMMAND", "ssh -o BatchMode=yes"),
        }
        # Of a name alone, the user's own helpers may know the password. Ours comes last, with an empty one: a token.
        first = ("-c", "credential.helper=") if self._login.get(_PASSWORD) else ()
        own = (*first, "-c", f"credential.helper={_HELPER}") if self._login else ()
        command = ["git", "-C", str(self._folder), "-c", "protocol.ext.allow=never", *own, *words]
        try:
            done = subprocess.run(command, capture_output=True, env=environment, timeout=_PATIENCE_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as fault:
            raise DeployError(f"{self._shown}: git does not answer here: {fault}", "install git") from fault
        if done.returncode:
            last = (done.stderr.decode(errors="replace").strip() or "it has no such revision").splitlines()[-1]
            raise DeployError(
                f"{self._shown}: git cannot fetch it on this machine: {without_logins(last)}",
                f"try it: git ls-remote {without_logins(self.url)}",
            )
        return done.stdout


def _login(url: str) -> tuple[str, dict[str, str]]:
    """The address without its login, and this login as variables for git's helper. A user's name may be a token.

    git would start its programs with the whole address, and everybody on this machine could read it there.
    """
    address = urlsplit(url)
    if not address.scheme.startswith("http") or "@" not in address.netloc:
        return url, {}
    place = address.netloc.rpartition("@")[2]
    user, password = unquote(address.username or ""), unquote(address.password or "")
    login = {_USER: user, _PASSWORD: password}
    if not password:  # as if the user's git settings said so: its helpers answer for this name
        count = int(os.environ.get("GIT_CONFIG_COUNT") or 0)
        name, value = f"GIT_CONFIG_KEY_{count}", f"GIT_CONFIG_VALUE_{count}"
        login |= {"GIT_CONFIG_COUNT": str(count + 1), name: "credential.username", value: user}
    return urlunsplit((address.scheme, place, address.path, address.query, "")), login
