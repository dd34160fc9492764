"""Rewrite a wheel that a build made: read each file, check it, and write it again with a correct record.

So nothing that readers of archives interpret differently (two names, two directories, links, false sizes) gets further.
"""

import base64
import email.parser
import hashlib
import io
import os
import re
import stat
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any, NamedTuple

from .tools import FAILED, Stop, normal

_MOST_PACKED, _MOST_UNPACKED, _MOST_FILES = 2 << 30, 4 << 30, 50_000
_MOST_DIRECTORY, _MOST_TEXT, _MOST_NEEDS, _PIECE = 16 << 20, 4 << 20, 2000, 1 << 20
# A library unpacks to five times its packed size. A small file that unpacks to very much is no package.
_MOST_TIMES, _ALWAYS_UNPACKED, _MOST_LINES, _LONGEST_NAME = 50, 64 << 20, 20_000, 250
# The errors that zipfile raises for a file that is no archive, or is damaged.
UNREADABLE = (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, zlib.error)
_WHEEL = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._]*)-([A-Za-z0-9][A-Za-z0-9._!+]*)(-[0-9][A-Za-z0-9._]*)?(-[A-Za-z0-9_.]+){3}\.whl"
)
_PATH = re.compile(r"[^\x00-\x1f\x7f\\:]{1,1000}")
_FIXED_DATE = (1980, 1, 1, 0, 0, 0)


class Wheel(NamedTuple):
    """A wheel's metadata. `empty`: the wheel has nothing else."""

    wheel: str
    sha256: str
    name: str
    version: str
    requires: list[str]
    extras: list[str]
    empty: bool = False


class Editable(NamedTuple):
    """An editable package: its folder, and that folder's path in the folder that is sent."""

    folder: Path
    inside: str


def remake(built: Path, out: Path, editable: Editable | None = None) -> Wheel:
    """Rewrite the wheel below `out`, as SHA256/NAME; return its metadata. Raises Stop if it is not a valid wheel.

    editable: leave out its code, and add a line that points to the package's folder in the run's working folder.
    """
    named = _WHEEL.fullmatch(built.name)
    if not named or len(built.name) > _LONGEST_NAME:
        raise Stop(FAILED, f"its build made {built.name[:200]!r}, which is not a wheel's name")
    try:
        with _open(built) as file, zipfile.ZipFile(file) as whole:
            most = min(_MOST_UNPACKED, _ALWAYS_UNPACKED + _MOST_TIMES * os.fstat(file.fileno()).st_size)
            infos = _checked(whole, named[1], named[2], most)
            head = _head(whole, infos, named[1], named[2])
            if editable:
                return _written(
                    out, _pointing(whole, infos, named, editable), f"{named[1]}-{named[2]}-py3-none-any.whl", head
                )
            head["empty"] = all(".dist-info/" in info.filename for info in infos)
            return _written(out, ((info, whole) for info in infos), built.name, head)
    except UNREADABLE as fault:
        raise Stop(FAILED, f"its build made {built.name}, which cannot be read: {fault}") from fault


def described(file: str, content: IO[bytes], size: int) -> dict[str, Any]:
    """The metadata of the wheel with that file name; reads only its METADATA. Raises Stop, or errors of zipfile."""
    named = _WHEEL.fullmatch(file)
    if not named or len(file) > 250:
        raise Stop(FAILED, f"{file[:200]!r} is not a wheel's name")
    _bound_directory(content, size)
    with zipfile.ZipFile(content) as whole:
        heads = [info for info in whole.infolist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", info.filename)]
        if len(heads) != 1 or heads[0].file_size > _MOST_TEXT:
            raise Stop(FAILED, f"it has {len(heads)} METADATA, and one of at most 4 MiB is a wheel's")
        return _read_head(whole, heads[0], named[1], named[2])


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _open(path: Path) -> IO[bytes]:
    """Open a file that the build made; refuse a link, a pipe, or a file that is too large."""
    try:
        file = open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")  # noqa: SIM115
    except OSError as fault:
        raise Stop(FAILED, f"its build left no wheel that can be read: {fault.strerror}") from fault
    facts = os.fstat(file.fileno())
    if not stat.S_ISREG(facts.st_mode) or facts.st_size > _MOST_PACKED:
        file.close()
        raise Stop(FAILED, f"its build left {path.name}, which is not a file of at most 2 GiB")
    _bound_directory(file, facts.st_size)
    return file


def _bound_directory(file: IO[bytes], size: int) -> None:
    """Refuse an archive whose list of files would fill the reader's memory."""
    file.seek(max(0, size - (1 << 16) - 22))
    tail = file.read()
    at = tail.rfind(b"PK\5\6")
    if at < 0 or len(tail) < at + 22:
        raise Stop(FAILED, "it is not a wheel")
    count, directory = struct.unpack("<HL", tail[at + 10 : at + 16])
    if tail[max(0, at - 20) : at].startswith(b"PK\6\7") or directory > _MOST_DIRECTORY:
        raise Stop(FAILED, f"it is a wheel of more than {_MOST_FILES} files")
    # It may have more entries than it states, and a reader reads them all.
    file.seek(max(0, size - len(tail) + at - directory))
    if max(count, file.read(directory).count(b"PK\1\2")) > _MOST_FILES:
        raise Stop(FAILED, f"it is a wheel of more than {_MOST_FILES} files")
    file.seek(0)


def _checked(whole: zipfile.ZipFile, name: str, version: str, most: int) -> list[zipfile.ZipInfo]:
    """The files of a wheel; none may be outside it, be a link, or occur twice. `most`: bytes when unpacked."""
    infos = [info for info in whole.infolist() if not info.is_dir()]
    seen = set()
    for info in infos:
        path, kind = info.filename, stat.S_IFMT(info.external_attr >> 16)
        parts = path.split("/")
        if not _PATH.fullmatch(path) or {"", ".", ".."} & set(parts) or info.orig_filename != path:
            raise Stop(FAILED, f"its build made a wheel with the path {path[:200]!r}")
        # Other compression methods take as much memory as the archive asks for; an offset before its start is invalid.
        is_odd = info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.header_offset < 0
        if kind not in (0, stat.S_IFREG) or info.flag_bits & 1 or is_odd:
            raise Stop(FAILED, f"its build made a wheel with {path[:200]!r}, which is not a plain file")
        if path in seen:
            raise Stop(FAILED, f"its build made a wheel with two files {path[:200]!r}")
        seen.add(path)
        top, _, kind_of_top = parts[0].rpartition(".")
        if kind_of_top in ("dist-info", "data") and top != f"{name}-{version}":
            raise Stop(FAILED, f"its build made a wheel of {name} {version} with {parts[0][:200]!r}")
    if sum(info.file_size for info in infos) > most or len(seen) > _MOST_FILES:
        raise Stop(FAILED, "its build made a wheel that unpacks to more than it may")
    return infos


def _head(whole: zipfile.ZipFile, infos: list[zipfile.ZipInfo], name: str, version: str) -> dict[str, Any]:
    """The data in METADATA: name, version, extras and requirements."""
    info = f"{name}-{version}.dist-info"
    sizes = {entry.filename: entry.file_size for entry in infos}
    for file in ("METADATA", "WHEEL"):
        if not 0 < sizes.get(f"{info}/{file}", 0) <= _MOST_TEXT:
            raise Stop(FAILED, f"its build made a wheel without {info}/{file}")
    fields = _read_head(whole, whole.getinfo(f"{info}/METADATA"), name, version)
    return {field: fields[field] for field in ("name", "version", "requires", "extras")}


def _read_head(whole: zipfile.ZipFile, head: zipfile.ZipInfo, name: str, version: str) -> dict[str, Any]:
    if head.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or head.flag_bits & 1:
        raise Stop(FAILED, "its METADATA is compressed in a way that not all read")
    with whole.open(head) as file:
        text = file.read(_MOST_TEXT).decode(errors="replace")
    header = re.split(r"\r?\n\r?\n", text, maxsplit=1)[0]
    if len(header.splitlines()) > _MOST_LINES:
        raise Stop(FAILED, f"it is a wheel whose METADATA says more than {_MOST_LINES} lines")
    read = email.parser.HeaderParser().parsestr(header)
    needs, extras = read.get_all("Requires-Dist") or [], read.get_all("Provides-Extra") or []
    if len(needs) + len(extras) > _MOST_NEEDS:
        raise Stop(FAILED, f"it is a wheel that needs more than {_MOST_NEEDS} packages")
    said_name, said_version = str(read["Name"] or "").strip(), str(read["Version"] or "").strip()
    is_long = max(len(said_name), len(said_version)) > _LONGEST_NAME
    if is_long or normal(said_name) != normal(name) or not same_version(said_version, version):
        raise Stop(
            FAILED, f"it is a wheel of {name} {version} that calls itself {said_name[:100]!r} {said_version[:100]!r}"
        )
    tidy = [[" ".join(str(entry).split())[:2000] for entry in entries] for entries in (needs, extras)]
    python = str(read["Requires-Python"] or "").strip()
    return {"name": said_name, "version": said_version, "requires": tidy[0], "extras": tidy[1], "python": python}


def same_version(spelling: str, other: str) -> bool:
    """Whether two spellings are the same version (PEP 440, as far as file names and indexes use it)."""

    def plain(text: str) -> str:
        text, _, local = text.strip().lower().removeprefix("v").replace("_", "-").partition("+")
        for long, short in (("alpha", "a"), ("beta", "b"), ("preview", "rc"), ("pre", "rc"), ("rev", "post")):
            text = text.replace(long, short)
        text = re.sub(r"(?<=\d)c(?=\d|$)", "rc", re.sub(r"[-_.]?(a|b|rc|c|post|dev)[-_.]?", r"\1", text))
        return re.sub(r"(\.0)+(?=[a-z]|$)", "", text) + "+" + re.sub(r"[-_.]", ".", local)

    return plain(spelling) == plain(other)


def _written(out: Path, files: Any, name: str, head: dict[str, Any]) -> Wheel:
    """Write the files and a RECORD of them. The folder is named by the digest of the new wheel."""
    out.mkdir(parents=True, exist_ok=True)
    part, rows, record = out / f".{os.getpid()}.part", list[str](), ""
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made:
        for info, source in files:
            folder, _, last = info.filename.partition("/")
            if folder.endswith(".dist-info"):
                record = f"{folder}/RECORD"
                if last.startswith("RECORD"):
                    continue
            entry = zipfile.ZipInfo(info.filename, _FIXED_DATE)
            entry.compress_type, entry.file_size, entry.create_system = zipfile.ZIP_DEFLATED, info.file_size, 3
            entry.external_attr = (stat.S_IFREG | 0o644 | (info.external_attr >> 16 & 0o111)) << 16
            sha, size = hashlib.sha256(), 0
            with _reader(source, info) as content, made.open(entry, "w") as target:
                while piece := content.read(_PIECE):
                    sha.update(piece)
                    size += len(piece)
                    target.write(piece)
            if size != info.file_size:
                raise zipfile.BadZipFile(f"{info.filename[:200]!r} is not of the size that it states")
            row = '"{}"'.format(info.filename.replace('"', '""')) if re.search('[",]', info.filename) else info.filename
            rows.append(f"{row},sha256={base64.urlsafe_b64encode(sha.digest()).rstrip(b'=').decode()},{size}\n")
        made.writestr(zipfile.ZipInfo(record, _FIXED_DATE), "".join(sorted(rows)) + f"{record},,\n")
    sha256 = digest(part)
    (out / sha256).mkdir(exist_ok=True)
    part.chmod(0o644)
    part.rename(out / sha256 / name)
    return Wheel(name, sha256, **head)


def _reader(source: zipfile.ZipFile | bytes, info: zipfile.ZipInfo) -> Any:
    return source.open(info) if isinstance(source, zipfile.ZipFile) else io.BytesIO(source)


def _pointing(whole: zipfile.ZipFile, infos: list[zipfile.ZipInfo], named: re.Match[str], editable: Editable) -> Any:
    """The files of a wheel without its code, and a line that points to the code in the folder."""
    described = [entry for entry in infos if ".dist-info/" in entry.filename and not entry.filename.endswith("/RECORD")]
    if sum(entry.file_size for entry in described) > _MOST_DIRECTORY:
        raise Stop(FAILED, f"-e {editable.inside}: what describes it is more than 16 MiB")
    info = {entry.filename: whole.read(entry) for entry in described}
    # A setup.py may list a package where setuptools wants a module: then the wheel has no code, but pip's -e finds it.
    names = info.get(f"{named[1]}-{named[2]}.dist-info/top_level.txt", b"").decode(errors="replace").split()
    tops = {entry.filename.split("/")[0] for entry in infos if ".dist-info/" not in entry.filename}
    tops = tops or {name for name in names if name.isidentifier()}
    # A project that lists no modules (`py-modules = []`) only needs packages: its root is its folder.
    roots = [root for root in ("src", ".") if all((editable.folder / root / top).exists() for top in tops or (".",))]
    if not roots:
        raise Stop(
            FAILED, f"-e {editable.inside}: its build makes files that are not in the folder: write it without -e"
        )
    head = f"{named[1]}-{named[2]}.dist-info/WHEEL"
    info[head] = re.sub(rb"(?m)^Root-Is-Purelib: .*|^Tag: .*$", b"", info[head]).strip()
    info[head] += b"\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    place = os.path.normpath(f"work/{editable.inside}/{roots[0]}")
    run = 'os.environ.get("MUSTER_RUN_DIR") or "/muster/run"'
    line = f"import os, site; site.addsitedir(os.path.join({run}, {place!r}))\n"
    for path, data in sorted({**info, f"_muster_editable_{named[1]}.pth": line.encode()}.items()):
        entry = zipfile.ZipInfo(path, _FIXED_DATE)
        entry.file_size = len(data)
        yield entry, data
