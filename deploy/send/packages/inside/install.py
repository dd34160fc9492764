"""Make an environment of a lock: its packages, and those of the base image behind them.

No code of a package runs here: the tools look at the environment only while it is empty, and the base's Python compiles
bytecode without a look at what is installed.
"""

import base64
import csv
import hashlib
import json
import os
import re
import shutil
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from .tools import BARE, FAILED, Stop, Work, behind, run
from .wheel import digest

_COMPILED_S = 1800.0
# Bytes of the largest file that may have the environment's path in it: a command. Of a package's own files none has.
_MOST_WITH_PATHS = 8 << 20
_MOST_OF_A_SCRIPT = 1 << 20  # bytes
_SHA256 = re.compile(r"sha256=([A-Za-z0-9_-]{43})=?")


class Installing(Work):
    """The order `install`. `keep` and `uv` come first, as who owns the tools; `install` as the packages' owner."""

    def keep(self) -> None:
        """Keep the wheels that were built in a clean container, each under the name that its build was given."""
        for wheel in self.order.get("built", []):
            sha256 = wheel["sha256"]
            if not re.fullmatch("[0-9a-f]{64}", sha256):
                raise Stop(FAILED, "a wheel without a hash")
            for note in (self.built / sha256).glob("*.json"):
                place, part = self.tools / "kept" / note.stem, self.tools / "kept" / f".{os.getpid()}.part"
                if place.exists():
                    continue
                with suppress(OSError):  # a full disk here costs only time the next time
                    place.parent.mkdir(mode=0o700, exist_ok=True)
                    shutil.rmtree(part, ignore_errors=True)
                    part.mkdir()
                    name = json.loads(note.read_text())["wheel"]
                    shutil.copyfile(self.built / sha256 / name, part / name)
                    shutil.copyfile(note, part / "wheel.json")
                    if digest(part / name) == sha256:
                        part.rename(place)

    def install(self) -> dict[str, Any]:
        """Make the environment at the target: what the lock says, what was built, and the base's packages behind it."""
        target, lock = Path(self.order["target"]), self.scratch / "lock.txt"
        built = [self._pin(wheel) for wheel in self.order.get("built", [])]
        lock.write_text("\n".join([*self.order["lock"], *built]) + "\n")
        python, packages = self.make_environment(target)
        # A container has the cache on another disk. A login has both, and no file is written twice.
        link = ["--link-mode", "hardlink" if BARE else "copy"]
        options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", *link]
        where = ["--find-links", str(self.wheels), "--python", python]
        run([self.uv, "pip", "install", *options, *where, "--requirement", str(lock)], self.scratch)
        for name in ("uv_cache.json", "direct_url.json"):  # they say when and whence, so no two are the same
            for path in packages.glob(f"*.dist-info/{name}"):
                path.unlink()
                record = path.with_name("RECORD")
                rows = record.read_text(errors="surrogateescape").splitlines(keepends=True)
                record.unlink()  # what is in its place may be in uv's cache too
                record.write_text("".join(row for row in rows if f"/{name}," not in row), errors="surrogateescape")
        behind(packages)
        _adopt_scripts(target)
        if not BARE:
            _compile(packages)  # elsewhere the packages cannot be written once they are used
        apart = {wheel["wheel"].partition("-")[0] for wheel in self.order.get("built", [])}
        linked = _Linked(packages, (target / "pyvenv.cfg").stat().st_mtime_ns)
        whole, size = _digest(target, _files_of(packages, apart), linked)
        if not BARE:
            os.sync()  # of a login's environment, run-order notes when it is on the disk
        return {"digest": whole, "size": size}

    def _pin(self, wheel: dict[str, Any]) -> str:
        """A line for a wheel that was built here. Its path has its hash: uv's cache knows a wheel by its path."""
        path = self.built / wheel["sha256"] / wheel["wheel"]
        if "/" in wheel["wheel"] or not path.is_file() or digest(path) != wheel["sha256"]:
            raise Stop(FAILED, f"{wheel['wheel'][:200]}: it is not what was built")
        return f"{wheel['wheel'].partition('-')[0]} @ {path.as_uri()} --hash=sha256:{wheel['sha256']}"


def _compile(packages: Path) -> None:
    """Compile bytecode without the packages' own start files (-S). Old files that do not compile are no fault."""
    words = [sys.executable, "-I", "-S", "-m", "compileall", "-q", "-q", "-j", "0", str(packages)]
    with suppress(Stop):
        run(words, Path("/"), shown=False, seconds=_COMPILED_S)


def _adopt_scripts(target: Path) -> None:
    """The base's own commands (torchrun, accelerate) once more, started by the environment's Python."""
    folder, own = Path(sys.executable).parent, f"#!{target}/bin/python\n".encode()
    for path in filter(Path.is_file, folder.iterdir()):
        made = target / "bin" / path.name
        try:
            with path.open("rb") as file:
                first, rest = file.readline(500), file.read(_MOST_OF_A_SCRIPT + 1)
        except OSError:
            continue  # sudo, say, which this user may start and not read
        is_script = first.startswith(b"#!") and b"python" in first and len(rest) <= _MOST_OF_A_SCRIPT
        if is_script and not made.exists() and not path.name.startswith("python"):
            made.write_bytes(own + rest)
            made.chmod(0o755)


def _files_of(packages: Path, names: set[str]) -> set[str]:
    """The files of these packages, which each host built for itself. `wheel.remake` wrote their records."""
    files = set()
    for name in names:
        for info in packages.glob(f"{name}-*.dist-info"):
            files |= {str(path) for path in info.rglob("*")}
            with open(info / "RECORD", newline="", errors="surrogateescape") as record:
                files |= {os.path.normpath(packages / row[0]) for row in csv.reader(record) if row}
    return files


class _Linked:
    """The files that uv has linked from what it took out of archives since a time: none of them is read again.

    It had just checked those archives' hashes, and their records have each file's. An older file of its cache may have
    been changed since; one that two packages have may be of either; one of another size was changed behind its record.
    """

    def __init__(self, packages: Path, since_ns: int) -> None:
        self._since_ns, self._recorded = since_ns, dict[str, list[str]]()
        for record in packages.glob("*.dist-info/RECORD"):
            with open(record, newline="", errors="surrogateescape") as rows:
                for name, *facts in filter(None, csv.reader(rows)):
                    path = f"{packages}/{name}"
                    self._recorded[path] = facts if self._recorded.get(path, facts) == facts else []

    def digest(self, path: str, facts: os.stat_result) -> str:
        """The SHA-256 of such a file; empty for another one."""
        words, size = self._recorded.get(path) or ("", "")
        is_new = facts.st_nlink > 1 and facts.st_mtime_ns >= self._since_ns and size == str(facts.st_size)
        recorded = _SHA256.fullmatch(words) if is_new else None
        return base64.urlsafe_b64decode(f"{recorded[1]}=").hex() if recorded else ""


def _digest_of(path: str, size: int, target: Path) -> str:
    """A digest of a file; where each host has its packages at a path of its own, without that path."""
    if size > _MOST_WITH_PATHS:
        return digest(Path(path))
    data = Path(path).read_bytes()
    if BARE and ("/site-packages/" not in path or path.endswith((".pth", "/RECORD"))):
        data = data.replace(os.fsencode(target), b"@").replace(os.fsencode(target.parents[1]), b"@")
        if path.endswith("/RECORD"):
            data = b"".join(line for line in data.splitlines(keepends=True) if not line.startswith(b"../"))
    return hashlib.sha256(data).hexdigest()


def _digest(target: Path, apart: set[str], linked: _Linked) -> tuple[str, int]:
    """A digest of every installed file and its name, but those apart; the bytes of all. Bytecode holds times."""
    whole, total = hashlib.sha256(), 0
    for folder, folders, names in os.walk(target):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            path = f"{folder}/{name}"
            facts = os.lstat(path)
            if stat.S_ISLNK(facts.st_mode):
                content = os.readlink(path)
            else:
                total += facts.st_size
                if path in apart:
                    continue
                content = linked.digest(path, facts) or _digest_of(path, facts.st_size, target)
            inside = path.removeprefix(f"{target}/")
            whole.update(f"{inside}\0{content}\0".encode(errors="surrogateescape"))
    return whole.hexdigest(), total
