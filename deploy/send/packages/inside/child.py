"""The process of a build: it copies a source and calls its backend (PEP 517). Any of that may run the source's code.

It gets its task as JSON in its only argument, and writes its answer into a file. The caller trusts that file only for
what a package may declare about itself.
"""

import hashlib
import importlib
import json
import os
import resource
import shutil
import sys
import tarfile
import tomllib
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

# A JSON object.
Fields = dict[str, Any]
_LEGACY = "setuptools.build_meta:__legacy__"
_LONGEST_FILE, _MOST_HASHED = 16 << 30, 2 << 30  # bytes


def prepare(task: Fields) -> Fields:
    """Copy or unpack the source; return where it is, and what its pyproject.toml declares about its build."""
    home = Path(task["home"])
    whole = home / "source"
    if task["archive"]:
        whole = _unpacked(Path(task["archive"]), whole)
    else:
        shutil.copytree(task["source"], whole, symlinks=True)
    folder = whole / task["path"]
    if folder.is_file():
        folder = _unpacked(folder, home / "inner")
    folder = folder / task["subdirectory"]
    system = {}
    if (folder / "pyproject.toml").is_file():
        system = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8")).get("build-system", {})
    elif not (folder / "setup.py").is_file():
        raise FileNotFoundError("it has neither pyproject.toml nor setup.py")
    return {
        "digest": "" if task["archive"] else _digest_of(home / "source"),
        "folder": str(folder),
        "requires": system.get("requires", ["setuptools>=40.8.0"]),
        "backend": system.get("build-backend", _LEGACY),
        "path": system.get("backend-path", []),
    }


def call(task: Fields) -> Fields:
    """Call a hook of the backend; return its result."""
    os.chdir(task["folder"])
    sys.path[:0] = [os.path.abspath(path) for path in task["path"]]
    name, _, rest = task["backend"].partition(":")
    backend: Any = importlib.import_module(name)
    for word in filter(None, rest.split(".")):
        backend = getattr(backend, word)
    if task["do"] == "requires":
        hook = getattr(backend, "get_requires_for_build_wheel", None)
        return {"requires": list(hook(None)) if hook else []}
    out = Path(task["home"]) / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    name = os.path.basename(backend.build_wheel(str(out), None))
    with suppress(OSError):
        os.chmod(out / name, 0o644)
    return {"wheel": name}


def wipe(task: Fields) -> Fields:
    """Remove what a build has left in places where the next build could find it."""

    def again(_: Any, path: str, __: Any) -> None:
        with suppress(OSError):
            os.chmod(os.path.dirname(path), 0o700)
            os.unlink(path)
        with suppress(OSError):
            os.chmod(path, 0o700)

    for place in task["places"]:
        for name in os.listdir(place):
            path = os.path.join(place, name)
            if os.lstat(path).st_uid != os.getuid():
                continue
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, onerror=again)
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)
    return {}


def _digest_of(folder: Path) -> str:
    """A digest of all files below a folder; empty if they are too large to read."""
    whole, size = hashlib.sha256(), 0
    for at, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted([*names, *(name for name in folders if os.path.islink(os.path.join(at, name)))]):
            path = Path(at, name)
            facts = path.lstat()
            size += facts.st_size
            if size > _MOST_HASHED:
                return ""
            if path.is_symlink():
                content = os.readlink(path)
            else:
                with path.open("rb") as file:
                    content = hashlib.file_digest(file, "sha256").hexdigest()
            row = [str(path.relative_to(folder)), content, facts.st_mode & 0o111]
            whole.update(json.dumps(row).encode())
    return whole.hexdigest()


def _unpacked(archive: Path, folder: Path) -> Path:
    """Unpack an archive; return the folder with the source. Most archives have one folder around everything."""
    folder.mkdir()
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(folder)
    else:
        with tarfile.open(archive) as tar:
            if hasattr(tarfile, "data_filter"):  # not every Python 3.11 has it
                tar.extraction_filter = tarfile.data_filter
            tar.extractall(folder)
    inner = list(folder.iterdir())
    return inner[0] if len(inner) == 1 and inner[0].is_dir() else folder


def main() -> None:
    """Do the task in the argument."""
    task = json.loads(sys.argv[1])
    sys.argv = ["setup.py"]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LONGEST_FILE, _LONGEST_FILE))
    Path("/proc/self/oom_score_adj").write_text("1000")  # out of memory, the kernel kills the build first
    do = {"prepare": prepare, "wipe": wipe}.get(task["do"], call)
    answer = json.dumps(do(task))
    Path(task["answer"]).write_text(answer)


if __name__ == "__main__":
    main()
