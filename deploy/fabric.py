"""Hosts for your own fabfile: a Fabric Group whose commands and files use Muster's SSH connections.

    hosts = Hosts("gpu-a,gpu-b")
    hosts.run("df -h /data")

It connects as the user's own `ssh` does (door/), never as Fabric itself would: known hosts are checked, and jump hosts,
certificates and `Match` work as in ssh. The results are Fabric's.
"""

from __future__ import annotations

import os
import posixpath
import shlex
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from fabric import Connection, Result, ThreadingGroup
from fabric.config import Config
from fabric.transfer import Result as Transferred
from invoke.exceptions import CommandTimedOut, UnexpectedExit
from paramiko.config import SSHConfig

from .core import fields
from .core.errors import DeployError, UsageError
from .core.printable import visible
from .core.text import amount
from .door import session
from .door.session import Session
from .job import cluster, consent, values
from .job.inventory import Host, typed_hosts
from .report.console import Console

__all__ = ["Hosts"]
# The most bytes of a file (it is held in memory here), and a command's time limit in seconds if the caller sets none.
MOST, LONGEST_S = 256 << 20, 3600.0
_MODE = fields.text(4, r"[0-7]{1,4}")
_INSTEAD = "the hosts of Muster have run, put and get; for a shell: muster shell"


def _content(path: Path) -> bytes:
    """The content of a file on this machine, up to one byte more than the limit. Raises UsageError."""
    try:
        with path.open("rb") as file:
            return file.read(MOST + 1)
    except OSError as failed:
        raise UsageError(f"{path}: {failed.strerror}", "name a file of this machine") from None


class HostConnection(Connection):  # type: ignore[misc]
    """One host of `Hosts`: Fabric's Connection, with Muster's SSH session in place of paramiko's."""

    def __init__(self, host: Host, hosts: Hosts) -> None:
        # With an empty SSHConfig, because Fabric would read SSH's settings by itself, and run the commands of `Match
        # exec`.
        self._set(_hosts=hosts, _name=host.name)
        super().__init__(host.name, user=host.user, port=host.port, config=Config(ssh_config=SSHConfig()))

    def open(self) -> None:
        """Not supported, as it would be a second way to log in. Raises UsageError, as do sudo, shell and sftp."""
        raise UsageError(f"{self._name}: Fabric opens no connection of its own here", _INSTEAD)

    def close(self) -> None:
        """Do nothing: the group owns the connection."""

    def run(
        self,
        command: str,
        *,
        hide: Any = None,
        warn: bool = False,
        timeout: float = LONGEST_S,
        env: Mapping[str, str] | None = None,
    ) -> Result:
        """Run a shell command within the context's `cd` and `prefix`. Everybody on the host can read it and `env`.

        hide, warn, timeout, env: as in Fabric. Raises UnexpectedExit, CommandTimedOut, DeployError.
        """
        line = self._prefix_commands(command)
        for name in env or {}:
            if not values.VARIABLE.fullmatch(name):
                raise UsageError(f"env: {name!r} is not the name of a variable", 'env={"NAME": "value"}')
        given = [f"{name}={value}" for name, value in (env or {}).items()]
        front = ["env", *given] if given else []
        try:
            done = self._session().run([*front, "sh", "-c", line], timeout_s=timeout, check=False)
        except session.SshFault as failed:
            if failed.kind == "slow":
                raise CommandTimedOut(self._result(command, env, hide, 124, "", failed.message), int(timeout)) from None
            raise
        result = self._result(command, env, hide, done.code, done.out, done.err)
        for name, text in (("out", done.out), ("err", done.err)):
            if hide in (None, False) or (hide not in (True, "both") and not str(hide).endswith(name)):
                print("".join(f"{self._name}  {visible(row)}\n" for row in text.splitlines()), end="", flush=True)
        if done.code and not warn:
            raise UnexpectedExit(result)
        return result

    def put(self, local: str | Path | bytes | IO[bytes], remote: str = "", preserve_mode: bool = True) -> Transferred:
        """Copy a file from this machine to the host, completely or not at all. Its folder there is created if needed.

        remote: a path relative to the home; a path that ends with / is a folder. Raises DeployError.
        """
        is_path = isinstance(local, str | Path)
        name = Path(str(local if is_path else getattr(local, "name", ""))).name
        data = _content(Path(local)) if isinstance(local, str | Path) else local
        data = data if isinstance(data, bytes) else data.read(MOST + 1)
        self._refuse_large(len(data), name or remote)
        path = self._place(f"{remote}{name}" if remote[-1:] in ("", "/") else remote)
        mode = Path(str(local)).stat().st_mode & 0o777 if is_path and preserve_mode else 0o600
        self._session().put(data, path, mode)
        return Transferred(local=local, orig_local=local, remote=path, orig_remote=remote, connection=self)

    def get(self, remote: str, local: str | IO[bytes] | None = None, preserve_mode: bool = True) -> Transferred:
        """Copy a file from the host to `local`, which may contain {host}, {basename}, {dirname}, {user} and {port}.

        Raises DeployError for a file that cannot be read or is too large.
        """
        path, pieces, size = self._place(remote), list[bytes](), 0

        def take(piece: bytes) -> None:
            nonlocal size
            size += len(piece)
            self._refuse_large(size, remote)
            pieces.append(piece)

        done = self._session().receive(["cat", "--", path], take)
        if done.code:
            raise session.CommandFailed(self._name, ["cat", "--", path], done)
        if local is not None and hasattr(local, "write"):
            local.write(b"".join(pieces))
            place: Any = local
        else:
            place = self._written(str(local or "{basename}"), path, b"".join(pieces))
            if preserve_mode:
                mode = _MODE(self._session().run(("stat", "-L", "-c", "%a", "--", path)).out.strip(), f"mode of {path}")
                Path(place).chmod(int(mode, 8) & 0o755)  # a host cannot make the file writable for other users here
        return Transferred(local=place, orig_local=local, remote=path, orig_remote=remote, connection=self)

    def _written(self, template: str, path: str, data: bytes) -> str:
        dirname, basename = posixpath.split(path)
        names = {"host": self._name, "user": self.user, "port": self.port, "basename": basename, "dirname": dirname}
        place = template.format(**names)
        place = os.path.join(place, basename) if place.endswith("/") or os.path.isdir(place) else place
        os.makedirs(os.path.dirname(os.path.abspath(place)), exist_ok=True)
        Path(place).write_bytes(data)
        return os.path.abspath(place)

    def _session(self) -> Session:
        opened: Session = self._hosts.session_of(self._name)
        return opened

    def _place(self, path: str) -> str:
        """The absolute path of a path that is relative to the home, or to the folder of `cd`."""
        if not path or "\0" in path:
            raise UsageError(
                "a path on the host is empty, or has a character that no path can have", 'put("run.sh", "jobs/")'
            )
        path = path.removeprefix("~/")
        # `home` of a session is Muster's own folder in the user's home.
        return posixpath.join(posixpath.dirname(self._session().home), *self.command_cwds, path)

    def _refuse_large(self, size: int, name: str) -> None:
        if size > MOST:
            hint = "muster push sends a folder, muster fetch copies a run's files, rsync any"
            raise DeployError(f"{self._name}: {name} has more than {amount(MOST)}", hint)

    def _result(self, command: str, env: Any, hide: Any, code: int, out: str, err: str) -> Result:
        return Result(
            connection=self, command=command, shell="sh", env=dict(env or {}), stdout=out, stderr=err, exited=code,
            hide=("stdout", "stderr") if hide in (True, "both") else (),
        )  # fmt: skip


class Hosts(ThreadingGroup):  # type: ignore[misc]
    """A Fabric Group of hosts: in the form of --hosts, or those of cluster.toml (`file`, or this folder's).

    `run`, `put` and `get` work on all hosts in parallel and return Fabric's GroupResult. If a host fails, its result is
    an exception, and GroupException is raised. Connections open at the first call, and end with `close`, with the
    `with` block, or with this process. `allow_folder`: as --allow-folder. Raises UsageError for hosts that cannot be
    understood.
    """

    def __init__(self, hosts: str | Sequence[str] = "", file: str | Path = "", *, allow_folder: bool = False) -> None:
        text = hosts if isinstance(hosts, str) else ",".join(hosts)
        with consent.asking(consent.ConsentGate(Console, allow_folder, "Hosts(..., allow_folder=True)")):
            self._hosts = cluster.find_cluster(text, str(file)).hosts
        list.__init__(self, [HostConnection(host, self) for host in self._hosts])
        self._opened: Any = None
        self._end = weakref.finalize(self, lambda: None)

    def session_of(self, name: str) -> Session:
        """The open session of a host. Raises SshFault if it could not be opened."""
        if self._opened is None:
            self._open()
        if fault := self._opened.faults.get(name):
            raise fault
        opened: Session = self._opened.values[name]
        return opened

    def _open(self) -> None:
        stack = ExitStack()
        self._opened = stack.enter_context(session.open_all(self._hosts))
        self._end = weakref.finalize(self, stack.close)

    def _do(self, method: str, *args: Any, **more: Any) -> Any:
        if self._opened is None:
            self._open()  # before Fabric starts a thread per host: connect once, to all hosts in parallel
        return super()._do(method, *args, **more)

    def put(self, local: str | Path | IO[bytes], remote: str = "", preserve_mode: bool = True) -> Any:
        """Like `put` of a single host. An open file is read once, and all hosts get its content."""
        if not hasattr(local, "read"):
            return self._do("put", local, remote, preserve_mode)
        name = Path(str(getattr(local, "name", ""))).name
        return self._do("put", local.read(MOST + 1), f"{remote}{name}" if remote[-1:] in ("", "/") else remote)

    def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        self._end()
        self._opened = None

    def __str__(self) -> str:
        return f"Hosts({shlex.quote(typed_hosts(self._hosts))})"
