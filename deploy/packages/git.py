"""Sources that requirements name in git repositories, fetched here with the user's own git: its keys stay here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit, urlunsplit

from ..core.errors import DeployError

_PATIENCE_S = 900.0


def split(word: str) -> tuple[str, str]:
    """Address and revision of `git+https://HOST/PATH@REVISION#...`; without a revision, HEAD."""
    address = urlsplit(word.removeprefix("git+"))
    path, _, revision = address.path.rpartition("@") if "@" in address.path else (address.path, "", "HEAD")
    return urlunsplit((address.scheme, address.netloc, path, "", "")), revision


def fetch(word: str) -> bytes:
    """The files of a `git+https://...@REVISION`, as a tar file without the history. Raises DeployError, git's words."""
    url, revision = split(word)
    if revision.startswith("-"):
        raise DeployError(f"{word}: not a revision: {revision}")
    with TemporaryDirectory(prefix="muster-git-") as name:
        folder = Path(name)
        _git(folder, word, "init", "--quiet", "--bare")
        try:
            _git(folder, word, "fetch", "--quiet", "--depth", "1", "--", url, revision)
            found = "FETCH_HEAD"
        except DeployError:  # a short commit, or a server that gives no single one
            _git(folder, word, "fetch", "--quiet", "--", url, "+refs/*:refs/theirs/*")
            found = _git(folder, word, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").decode().strip()
        return _git(folder, word, "archive", "--format", "tar", found)


def _git(folder: Path, word: str, *words: str) -> bytes:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_DIR")},
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_SSH_COMMAND": os.environ.get("GIT_SSH_COMMAND", "ssh -o BatchMode=yes"),
    }
    try:
        command = ["git", "-C", str(folder), "-c", "protocol.ext.allow=never", *words]
        done = subprocess.run(command, capture_output=True, env=environment, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise DeployError(f"{word}: git does not answer here: {fault}", "install git, or name an archive") from fault
    if done.returncode:
        last = (done.stderr.decode(errors="replace").strip() or "it has no such revision").splitlines()[-1]
        raise DeployError(
            f"{word}: git cannot fetch it on this machine: {last}", f"try it: git ls-remote {word[4:].split('@')[0]}"
        )
    return done.stdout
