"""Make an environment from a lock: its packages come first, and the base image's packages after them.

No code of a package runs here: the tools inspect the environment only while it is empty, and the base's Python compiles
bytecode without loading what is installed.
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

from .tools import BARE, FAILED, Stop, Work, add_base, run
from .wheel import digest

_COMPILED_S = 1800.0
# Bytes of the largest file that may contain the environment's path. Only commands do; no file of a package does.
_MOST_WITH_PATHS = 8 << 20
_MOST_OF_A_SCRIPT = 1 << 20  # bytes
_SHA256 = re.compile(r"sha256=([A-Za-z0-9_-]{43})=?")


class Installing(Work):
    """The order `install`. `keep` and `uv` run first, as the owner of the tools; `install` as the packages' owner."""

    def keep(self) -> None:
        """Save the wheels that were built in a clean container, each under the name that its build was given."""
        for wheel in self.order.get("built", []):
            sha256 = wheel["sha256"]
            if not re.fullmatch("[0-9a-f]{64}", sha256):
                raise Stop(FAILED, "a wheel without a hash")
            for note in (self.built / sha256).glob("*.json"):
                place, part = self.tools / "kept" / note.stem, self.tools / "kept" / f".{os.getpid()}.part"
                if place.exists():
                    continue
                with suppress(OSError):  # if the disk is full, the next build only takes longer
                    place.parent.mkdir(mode=0o700, exist_ok=True)
                    shutil.rmtree(part, ignore_errors=True)
                    part.mkdir()
                    name = json.loads(note.read_text())["wheel"]
                    shutil.copyfile(self.built / sha256 / name, part / name)
                    shutil.copyfile(note, part / "wheel.json")
                    if digest(part / name) == sha256:
                        part.rename(place)

    def install(self) -> dict[str, Any]:
        """Make the environment at the target: the lock's packages, the built wheels, then the base's packages."""
        target, lock = Path(self.order["target"]), self.scratch / "lock.txt"
        built = [self._pin(wheel) for wheel in self.order.get("built", [])]
        lock.write_text("\n".join([*self.order["lock"], *built]) + "\n")
        python, packages = self.make_environment(target)
        # In a container, the cache is on another disk. A login has both on one disk, so files are linked and not
        # written twice.
        link = ["--link-mode", "hardlink" if BARE else "copy"]
        options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", *link]
        where = ["--find-links", str(self.wheels), "--python", python]
        run([self.uv, "pip", "install", *options, *where, "--requirement", str(lock)], self.scratch)
        for name in ("uv_cache.json", "direct_url.json"):  # they contain times and places, so no two are the same
            for path in packages.glob(f"*.dist-info/{name}"):
                path.unlink()
                record = path.with_name("RECORD")
                rows = record.read_text(errors="surrogateescape").splitlines(keepends=True)
                record.unlink()  # its file may be linked with uv's cache
                record.write_text("".join(row for row in rows if f"/{name}," not in row), errors="surrogateescape")
        add_base(packages)
        _adopt_scripts(target)
        if not BARE:
            _compile(packages)  # in a container the packages are read-only when they are used
        apart = {wheel["wheel"].partition("-")[0] for wheel in self.order.get("built", [])}
        linked = _Linked(packages, (target / "pyvenv.cfg").stat().st_mtime_ns)
        whole, size = _digest(target, _files_of(packages, apart), linked)
        if not BARE:
            os.sync()  # for a login's environment, run-order notes when it is on the disk
        return {"digest": whole, "size": size}

    def _pin(self, wheel: dict[str, Any]) -> str:
        """The lock line for a wheel that was built here. Its path has its hash: uv's cache goes by the path."""
        path = self.built / wheel["sha256"] / wheel["wheel"]
        if "/" in wheel["wheel"] or not path.is_file() or digest(path) != wheel["sha256"]:
            raise Stop(FAILED, f"{wheel['wheel'][:200]}: it is not what was built")
        return f"{wheel['wheel'].partition('-')[0]} @ {path.as_uri()} --hash=sha256:{wheel['sha256']}"


def _compile(packages: Path) -> None:
    """Compile bytecode without running the packages' start files (-S). Old files that do not compile are no error."""
    words = [sys.executable, "-I", "-S", "-m", "compileall", "-q", "-q", "-j", "0", str(packages)]
    with suppress(Stop):
        run(words, Path("/"), shown=False, seconds=_COMPILED_S)


def _adopt_scripts(target: Path) -> None:
    """Copy the base's own commands (torchrun, accelerate), so that the environment's Python starts them."""
    folder, own = Path(sys.executable).parent, f"#!{target}/bin/python\n".encode()
    for path in filter(Path.is_file, folder.iterdir()):
        made = target / "bin" / path.name
        try:
            with path.open("rb") as file:
                first, rest = file.readline(500), file.read(_MOST_OF_A_SCRIPT + 1)
        except OSError:
            continue  # for example sudo, which this user may run but not read
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
    """The files that uv has linked from unpacked archives since a time: their digests are known without reading them.

    uv had just checked the hashes of those archives, and their records have each file's hash. An older file in its
    cache may have been changed since; a file that two packages have may be from either; a file of another size was
    changed after its record was written. None of these counts.
    """

    def __init__(self, packages: Path, since_ns: int) -> None:
        self._since_ns, self._recorded = since_ns, dict[str, list[str]]()
        for record in packages.glob("*.dist-info/RECORD"):
            with open(record, newline="", errors="surrogateescape") as rows:
                for name, *facts in filter(None, csv.reader(rows)):
                    path = f"{packages}/{name}"
                    self._recorded[path] = facts if self._recorded.get(path, facts) == facts else []

    def digest(self, path: str, facts: os.stat_result) -> str:
        """The SHA-256 of such a file; empty for any other file."""
        words, size = self._recorded.get(path) or ("", "")
        is_new = facts.st_nlink > 1 and facts.st_mtime_ns >= self._since_ns and size == str(facts.st_size)
        recorded = _SHA256.fullmatch(words) if is_new else None
        return base64.urlsafe_b64decode(f"{recorded[1]}=").hex() if recorded else ""


def _digest_of(path: str, size: int, target: Path) -> str:
    """A digest of a file; without the environment's path in it, if each host has its packages at a different path."""
    if size > _MOST_WITH_PATHS:
        return digest(Path(path))
    data = Path(path).read_bytes()
    if BARE and ("/site-packages/" not in path or path.endswith((".pth", "/RECORD"))):
        data = data.replace(os.fsencode(target), b"@").replace(os.fsencode(target.parents[1]), b"@")
        if path.endswith("/RECORD"):
            data = b"".join(line for line in data.splitlines(keepends=True) if not line.startswith(b"../"))
    return hashlib.sha256(data).hexdigest()


def _digest(target: Path, apart: set[str], linked: _Linked) -> tuple[str, int]:
    """A digest of all installed files and names, without `apart` and bytecode (it has times); the total bytes."""
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
