"""The uv that resolves on this machine and installs on hosts: one version, each of its files pinned by its hash."""

from __future__ import annotations

import base64
import io
import mmap
import os
import platform
import re
import shlex
import shutil
import sys
import tarfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from threading import Lock

from ...core.errors import DeployError
from ...core.printable import visible
from ...core.text import last_line
from . import store
from .inside.tools import last_words
from .local_runner import LocalRunner
from .settings import Settings
from .store import Content

PINS = Path(__file__).with_name("uv.txt").read_text()
VERSION = re.search(r"^uv==([0-9.]+)", PINS, re.MULTILINE)[1]  # type: ignore[index]
_TAGS = {"x86_64": "manylinux2014_x86_64", "aarch64": "manylinux2014_aarch64"}
# An index may answer without end. The limits are in KiB of memory, and in blocks of 512 bytes of each written file.
_LIMITED = 'ulimit -c 0; ulimit -d 2097152; ulimit -f 8388608; exec "$0" "$@" >/dev/null'
_PATIENCE_S, _LAST_LINES = 1800.0, 200
_FETCH_LOCK = Lock()  # hosts that lack uv ask for it at the same time
# The Python for a host that has none: a version whose hash that uv knows. An unreachable server must fail fast.
PYTHON = "3.12.16"
_FAIL_FAST = {"UV_HTTP_CONNECT_TIMEOUT": "2", "UV_HTTP_RETRIES": "0", "UV_NO_CONFIG": "1", "UV_NO_PROGRESS": "1"}
# The only program that uv can start on this machine: it answers uv's question about a Python, and does nothing else. So
# no file from the folder, from a git source or from an index is run, whatever its build would do.
_GUARD = r"""
import contextlib, io, json, re, sys
WHOLE = r'import sys; sys\.path = \[__import__\("os"\)\.fsdecode\(b"%%s/\.tmp\w+"\)\] \+ sys\.path; '
WHOLE += r"from python\.get_interpreter_info import main; main\(\)"
words = sys.argv[1:]
if words[:3] != ["-I", "-B", "-c"] or len(words) != 4 or not re.fullmatch(WHOLE %% re.escape(%r), words[3]):
    sys.exit("nothing is built on this machine")
with contextlib.redirect_stdout(io.StringIO()) as answer, contextlib.suppress(SystemExit):
    exec(words[3])
own = dict.fromkeys(("sys_executable", "sys_base_executable"), %r)
print(json.dumps({**json.loads(answer.getvalue()), **own}))
"""


class Failed(DeployError):
    """uv failed on this machine. `words`: all of its output, without passwords.

    `excluding`: the files with the lines that exclude packages of the base.
    """

    def __init__(self, words: str, excluding: Sequence[str] = (), hint: str = "") -> None:
        super().__init__(words, hint)
        self.words, self.excluding = words, excluding


class Uv:
    """uv on this machine, in a scratch folder, with its own environment. It builds and runs nothing.

    `tell` gets each line of progress.
    """

    def __init__(self, folder: Path, scratch: Path, settings: Settings, tell: Callable[[str], None]) -> None:
        self.settings, self._tell, self._scratch = settings, tell, scratch
        self._program = program(folder)
        cache = folder / "uv-cache"
        cache.mkdir(mode=0o700, exist_ok=True)
        self.python = scratch / "python"
        guard = scratch / "guard.py"
        guard.write_text(_GUARD % (_in_a_program(str(cache)), str(self.python)))
        # A small shell script, because a shebang line cannot hold a path that has a space in it.
        self.python.write_text(f'#!/bin/sh\nexec {quote(sys.executable)} -I -S {quote(str(guard))} "$@"\n')
        self.python.chmod(0o700)
        names = ("UV_", "HTTP", "http", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy")
        of_user = {name: value for name, value in settings.variables.items() if name.startswith(names)}
        fixed = {"HOME": str(scratch), "PATH": "/nonexistent", "UV_CACHE_DIR": str(cache), "UV_NO_PROGRESS": "1"}
        self._environment = {**of_user, **fixed, "UV_PYTHON_DOWNLOADS": "never", "UV_NO_CONFIG": "1"}
        if settings.certificates:
            (scratch / "ca").write_bytes(settings.certificates)
            self._environment["SSL_CERT_FILE"] = str(scratch / "ca")

    def run(self, words: Sequence[str], folder: Path, shown: bool = True) -> None:
        """Run uv once; its result is in files. Raises Failed."""

        def hear(line: str) -> None:
            # The user knows nothing about Muster's own scratch files, so lines about them are not shown.
            if shown and line.startswith(("Resolved", "warning")) and str(self._scratch) not in line:
                self._tell(visible(self.settings.hidden(line)[:300]))

        argv = ["/bin/sh", "-c", _LIMITED, self._program, *words]
        done = LocalRunner().run(
            argv, timeout_s=_PATIENCE_S, check=False, on_line=hear, folder=folder, environment=self._environment
        )
        if done.code:
            lines = [self.settings.hidden(line) for line in done.out.splitlines()[-_LAST_LINES:]]
            raise Failed(last_words(lines) or f"uv ended with code {done.code}")


def program(folder: Path, machine: str = "") -> str:
    """The path of uv in that version: the one fetched before, else fetched from the user's index.

    `machine`: fetch it for another processor architecture than this machine's. Raises DeployError.
    """
    home = folder / "-".join(filter(None, ("uv", VERSION, machine)))
    fetched = home / "bin" / "uv"
    with _FETCH_LOCK:
        if fetched.is_file():
            return str(fetched)
        with TemporaryDirectory(prefix="uv-", suffix=store.PART, dir=folder) as part:
            more = ("--only-binary", ":all:", "--platform", _TAGS[machine]) if machine else ()
            if fault := _fetch(Path(part, "uv"), more):
                raise DeployError(
                    f"this machine: pip cannot get uv {VERSION} from an index: {fault}",
                    "check pip config list; or install its wheel: "
                    f"{shlex.join(('pip', 'install', *more, '--target', str(home)))} uv-{VERSION}-*.whl",
                )
            if not fetched.is_file():  # another command may have fetched it first
                shutil.rmtree(home, ignore_errors=True)
                Path(part, "uv").rename(home)
    return str(fetched)


def program_for(host: str, machine: str, folder: Path) -> Content:
    """uv for a host's processor, mapped from the disk.

    It is this machine's own, or is fetched from the index that this machine reaches. Raises DeployError.
    """
    is_ours = (platform.system(), platform.machine()) == ("Linux", machine)
    if not is_ours and machine not in _TAGS:
        raise DeployError(f"{host}: there is no uv for its processor ({machine})", "--requirements no; use an image")
    with open(program(folder, "" if is_ours else machine), "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def python_for(machine: str, folder: Path, settings: Settings) -> bytes:
    """The input for bring-python: a Python that runs anywhere, for a host's processor. Raises DeployError."""
    with TemporaryDirectory(prefix="muster-python-") as name:
        environment = {**os.environ, **settings.variables, **_FAIL_FAST, "HOME": name, "UV_CACHE_DIR": f"{name}/cache"}
        if settings.certificates:
            Path(name, "ca").write_bytes(settings.certificates)
            environment["SSL_CERT_FILE"] = f"{name}/ca"
        words = [program(folder), *_getting(machine), f"{name}/got"]
        done = LocalRunner().run(words, check=False, timeout_s=_PATIENCE_S, environment=environment)
        if done.code:
            raise Failed(settings.hidden(last_line(done.out, "no output").strip()))
        return b"\n" + _packed("python", next(Path(name, "got").glob(f"cpython-{PYTHON}-*")))


def python_getter(host: str, machine: str, folder: Path, settings: Settings) -> bytes:
    """The input for bring-python: uv, and the command that gets that Python on the host. Raises DeployError."""
    variables = {**settings.variables, **_FAIL_FAST, "UV_CACHE_DIR": "cache"}
    lines = [f"export {name}={quote(value)}" for name, value in variables.items()]
    get = "\n".join([*lines, shlex.join(["./uv", *_getting(machine), "got"])])
    with TemporaryDirectory(prefix="muster-python-") as name:
        uv = Path(name, "uv")
        uv.write_bytes(program_for(host, machine, folder))
        uv.chmod(0o700)
        return base64.b64encode(get.encode()) + b"\n" + _packed("uv", uv)


def _getting(machine: str) -> list[str]:
    return ["python", "install", f"cpython-{PYTHON}-linux-{machine}-gnu", "--no-bin", "--install-dir"]


def _packed(name: str, path: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        archive.add(path, name)
    return packed.getvalue()


def _fetch(target: Path, more: Sequence[str]) -> str:
    """Let pip get uv by its hashes. Returns pip's last line if pip fails, else an empty text."""
    # PIP_USER must not redirect it to the user's own packages. uv makes environments without pip, so Python's bundled
    # pip is used there.
    environment = {**os.environ, "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}
    if not find_spec("pip") and (python := find_spec("ensurepip")) and python.origin:
        environment["PYTHONPATH"] = str(next(Path(python.origin).parent.glob("_bundled/pip-*.whl"), ""))
    with TemporaryDirectory(prefix="muster-uv-") as name:
        pins = Path(name) / "uv.txt"
        pins.write_text(PINS)
        words = ["install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:", *more]
        command = [sys.executable, "-P", "-m", "pip", *words, "--target", str(target), "--requirement", str(pins)]
        done = LocalRunner().run(
            command, folder=Path(name), environment=environment, timeout_s=_PATIENCE_S, check=False
        )
    return last_line(done.out, "no output") if done.code else ""


def _in_a_program(path: str) -> str:
    """A path in the form in which uv writes it into a Python program, in quotes: special bytes by their numbers."""
    plain = repr(os.fsencode(path))[2:-1].replace("\\'", "'")
    return plain.replace("'", "\\'").replace('"', '\\"')
