"""Fetch the git sources of a project's requirements, with the user's own git: its keys stay on this machine.

Only the fetch uses the user's settings: how to reach a server, and with which login. The fetched content is somebody
else's: it is read without any settings, within limits (send/folder/git_files.py).
"""

from __future__ import annotations

import mmap
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlsplit, urlunsplit

from ....core.errors import DeployError
from ....core.text import amount, last_line
from ...folder import git_files
from ...folder.git import own_setting
from ...folder.git_files import Objects
from .. import addresses
from ..settings import without_logins

_PATIENCE_S, _SECONDS = 900.0, 120  # elapsed time and processor time for one fetch
MOST, MOST_FILES = 256 << 20, 50_000  # bytes and files of one source, unpacked
_MOST_PACK = 1 << 30  # bytes that a server may send
_USER, _PASSWORD = "MUSTER_GIT_USER", "MUSTER_GIT_PASSWORD"
_HELPER = f'!printf \'username=%s\\npassword=%s\\n\' "${_USER}" "${_PASSWORD}"; :'
# Variables that tell git how this user reaches a server. git's other variables may select another repository.
_OWN = re.compile(r"GIT_(?:SSH|SSL|HTTP|CONFIG|ASKPASS|TRACE|CURL)\w*")
_SETTINGS = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "fetch.recurseSubmodules=false", "gc.auto=0"),
    *("http.followRedirects=initial", "pack.threads=1", "core.bigFileThreshold=8m", "maintenance.auto=false"),
)


def split(word: str) -> tuple[str, str]:
    """The address and revision in `git+https://HOST/PATH@REVISION#...`; without a revision, HEAD."""
    address = urlsplit(word.removeprefix("git+"))
    path, _, revision = address.path.rpartition("@") if "@" in address.path else (address.path, "", "HEAD")
    return urlunsplit((address.scheme, address.netloc, path, "", "")), revision


def fetch(word: str) -> mmap.mmap:
    """The files of `git+https://...@REVISION`, as a tar file without the history.

    Raises DeployError, with git's words.
    """
    url, revision = split(word)
    shown = without_logins(word)
    if revision.startswith("-") or not re.fullmatch(r"[\w./@{}^~+-]+", revision):
        raise DeployError(f"{shown}: not a revision: {revision}")
    with TemporaryDirectory(prefix="muster-git-") as name:
        git_files.make(Path(name))
        known = _fetch(Path(name), shown, url, revision)
        try:
            return _read(Objects(Path(name), Path(name) / "objects"), known, shown)
        except subprocess.SubprocessError as fault:
            raise DeployError(f"{shown}: its files need more time, memory or space than Muster allows") from fault
        except OSError as fault:
            raise DeployError(f"{shown}: it cannot be read: {fault.strerror}") from fault


def fetch_all(words: Sequence[str], tell: Callable[[str], None]) -> dict[str, mmap.mmap]:
    """The files of these sources, by source. What those sources refer to is not fetched. Raises DeployError."""
    fetched = {}
    for word in words:
        url = split(word)[0]
        addresses.check_host(urlsplit(url).hostname or "", without_logins(word))
        addresses.check_reached(url)
        tell(f"fetching {without_logins(word)} here")
        fetched[word] = fetch(word)
    return fetched


def _fetch(place: Path, shown: str, url: str, revision: str) -> str:
    """Fetch the revision; return the name it has in the local repository."""
    for depth in (("--depth", "1"), ()):  # the simplest servers cannot send a single commit
        with suppress(DeployError):
            _run_fetch(place, shown, url, *depth, revision)
            return "FETCH_HEAD"
    _run_fetch(place, shown, url, "+refs/*:refs/theirs/*")  # the revision is an abbreviated commit
    return revision


def _read(objects: Objects, known: str, shown: str) -> mmap.mmap:
    """The source as a tar file."""
    try:
        commit = objects.commit(known)
    except subprocess.CalledProcessError as fault:
        raise DeployError(f"{shown}: git cannot fetch it on this machine: it has no such revision") from fault
    sizes = objects.sizes(commit)
    if sum(sizes) > MOST or len(sizes) > MOST_FILES:
        raise DeployError(
            f"{shown}: {amount(sum(sizes))} in {len(sizes)} files, more than Muster allows",
            f"at most {amount(MOST)} and {MOST_FILES} files: build a wheel of it, and list that",
        )
    # A tar file has a header for each file, and padding at its end.
    return objects.archive(commit, MOST + 2048 * MOST_FILES)


def _run_fetch(place: Path, shown: str, url: str, *words: str) -> None:
    """Let git fetch something from a server into a git folder. Raises DeployError, with git's words."""
    address, login = _login(url)
    # If there is only a user name, the user's own helpers may know the password. Muster's helper comes last, with an
    # empty password: the name may be a token.
    first = ("credential.helper=",) if login.get(_PASSWORD) else ()
    own = (f"credential.helper={_HELPER}",) if login else ()
    settings = [word for setting in (*_SETTINGS, *first, *own) for word in ("-c", setting)]
    shell = {name: value for name, value in os.environ.items() if name[:4] != "GIT_" or _OWN.fullmatch(name)}
    if not {"GIT_SSH", "GIT_SSH_COMMAND"} & shell.keys() and not own_setting("core.sshCommand"):
        shell["GIT_SSH_COMMAND"] = "ssh -o BatchMode=yes"
    ours = {"GIT_DIR": str(place), "GIT_ALLOW_PROTOCOL": "https:ssh", "GIT_TERMINAL_PROMPT": "0"}
    command = ["git", *settings, "fetch", "--quiet", "--no-tags", "--no-recurse-submodules", *words[:-1]]
    try:
        done = subprocess.run(
            git_files.limited([*command, "--", address, words[-1]], _SECONDS, _MOST_PACK),
            cwd=place,
            env={**shell, **login, **ours, "GIT_NO_REPLACE_OBJECTS": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise DeployError(f"{shown}: git does not answer here: {fault}", "install git") from fault
    if done.returncode:
        # After ssh's own words, git reports that it could not read, and what to check.
        spoken, fatal, _ = done.stderr.decode(errors="replace").partition(
            "fatal: Could not read from remote repository"
        )
        last = last_line(spoken, fatal or "it has no such revision")
        raise DeployError(
            f"{shown}: git cannot fetch it on this machine: {without_logins(last)}",
            f"try it: git ls-remote {without_logins(address)}",
        )


def _login(url: str) -> tuple[str, dict[str, str]]:
    """The address without its login, and this login as variables for git's helper. A user name may be a token.

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
