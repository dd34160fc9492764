"""`python -m release.dist [FOLDER]`: build the wheel, source archive and SBOM, with the same bytes on every machine.

`--check` builds twice and compares. File times are that of the last commit; the archive has only files in git.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from release import sbom

HOME = Path(__file__).resolve().parents[1]


def build(folder: Path) -> list[Path]:
    """Build into a folder, and return the files. Raises subprocess.CalledProcessError."""
    folder.mkdir(parents=True, exist_ok=True)
    moment = int(_git("log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "source")
        _copy_known_files(source)
        wheel = _build_wheel(source, Path(scratch, "wheel"), folder, moment)
        archive = _pack_source(source, folder, wheel, moment)
    parts = folder / f"{archive.name.removesuffix('.tar.gz')}.cdx.json"
    parts.write_text(sbom.list_parts(moment))
    return [wheel, archive, parts]


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=HOME, text=True, capture_output=True, check=True).stdout


def _copy_known_files(source: Path) -> None:
    for name in _git("ls-files", "-z").split("\0"):
        file = HOME / name
        if name and file.is_file() and not file.is_symlink():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes(file.read_bytes())
            # An executable file stays executable. The mode is set because the umask would change it.
            (source / name).chmod(0o755 if os.access(file, os.X_OK) else 0o644)


def _build_wheel(source: Path, empty: Path, folder: Path, moment: int) -> Path:
    """Build the wheel into `folder`, which may also contain a wheel of another version."""
    words = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "wheel", "--no-deps"]
    words += ["--no-build-isolation"] if _is_there("setuptools") else []
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(moment)}
    # A wheel keeps the modes of the files that the build copies.
    subprocess.run([*words, "--wheel-dir", str(empty), str(source)], env=environment, umask=0o022, check=True)
    (wheel,) = empty.glob("*.whl")
    return Path(shutil.copy(wheel, folder))


def _is_there(module: str) -> bool:
    return subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0


def _pack_source(source: Path, folder: Path, wheel: Path, moment: int) -> Path:
    """Pack the source archive: the files in git, and the wheel's metadata as PKG-INFO."""
    with zipfile.ZipFile(wheel) as parts:
        (metadata,) = [name for name in parts.namelist() if name.endswith(".dist-info/METADATA")]
        about = parts.read(metadata)
    stem = "-".join(wheel.name.split("-")[:2])
    files = {name: (source / name) for name in _git("ls-files", "-z").split("\0") if name and (source / name).exists()}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, f"{stem}/PKG-INFO", about, 0o644, moment)
        for name, file in sorted(files.items()):
            _add(tar, f"{stem}/{name}", file.read_bytes(), file.stat().st_mode & 0o777, moment)
    archive = folder / f"{stem}.tar.gz"
    archive.write_bytes(gzip.compress(packed.getvalue(), mtime=moment))
    return archive


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int, moment: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(content), mode, moment
    tar.addfile(entry, io.BytesIO(content))


def digests(files: list[Path]) -> dict[str, str]:
    """The SHA-256 of each file, by file name."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def main(words: list[str]) -> int:
    """Build and print the digests. With --check, build twice and return 1 if a byte differs."""
    folder = Path(next((word for word in words if not word.startswith("-")), str(HOME / "build/dist")))
    made = digests(build(folder))
    if "--check" in words:
        with tempfile.TemporaryDirectory() as second:
            again = digests(build(Path(second)))
        if made != again:
            print(f"error: two builds differ in these files: {sorted(set(made.items()) ^ set(again.items()))}")
            return 1
    for name, digest in made.items():
        print(f"{digest}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
