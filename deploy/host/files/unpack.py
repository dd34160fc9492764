"""Unpack a host's tar stream, as it arrives, into a separate folder: regular files and folders only.

The stream is not trusted: no link is made or followed, no name can lead out of the folder, and nothing may be larger
than the host announced. If a member is not taken, it is reported with the reason, and the others are unpacked. An
incomplete stream is the host's fault. The stream is not compressed, so a host cannot make us write more bytes than it
sends.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from ...core.errors import BadAnswer, DeployError
from ...core.names import FileName, file_name
from ...core.text import amount
from ...run.files.own_files import open_folder

BLOCK = tarfile.BLOCKSIZE
# The most members in addition to those asked for; the most levels of folders; the longest path, in characters.
MOST_MEMBERS, DEEPEST, LONGEST_PATH = 200_000, 32, 4096
# A long name has a header of its own; this is its most bytes.
_MOST_EXTRA = 64 << 10
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_EXTRA = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
# Muster asks for GNU's tar format, which has none of these.
_UNASKED = (tarfile.GNUTYPE_SPARSE, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_KINDS = {tarfile.LNKTYPE: "a link", tarfile.SYMTYPE: "a link", tarfile.FIFOTYPE: "a pipe"}
_MOST_NAMED = 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
Path = tuple[FileName, ...]


@dataclass
class LeftOut:
    """The members that were not taken: how many, and the first few by name, with the reason."""

    named: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, name: str, why: str) -> None:
        """Note a member that is not taken."""
        self.count += 1
        if len(self.named) < _MOST_NAMED:
            self.named.append(f"{name[:200]!r} {why}")


class Unpacker:
    """Unpacks a stream piece by piece.

    `root`: a descriptor of the host's separate folder; `room`: the most bytes that may come, `most`: the most members.
    `refuse` returns why a path is not taken; empty if it is. `feed` and `end` raise DeployError if the stream is not a
    whole archive, is larger than `room`, or does not fit on the local disk.
    """

    def __init__(self, root: int, room: int, refuse: Callable[[Path], str], most: int) -> None:
        self._root, self._room, self._announced, self._refuse = root, room, room, refuse
        self._most = most
        self.left_out, self.files = LeftOut(), 0
        self._block, self._over, self._members = bytearray(), False, 0
        self._left = self._padding = 0
        self._out: int | None = None
        self._folder, self._name = -1, ""
        self._time = 0.0
        self._extra: bytearray | None = None
        self._extra_type, self._long_name = b"", ""

    def feed(self, data: bytes) -> None:
        """Take the next piece of the stream."""
        view = memoryview(data)
        while view and not self._over:
            if self._left:
                piece = view[: self._left]
                self._body(piece)
                self._left -= len(piece)
                view = view[len(piece) :]
                if not self._left:
                    self._finish()
            elif self._padding:
                skipped = min(self._padding, len(view))
                self._padding -= skipped
                view = view[skipped:]
            else:
                piece = view[: BLOCK - len(self._block)]
                self._block += piece
                view = view[len(piece) :]
                if len(self._block) == BLOCK:
                    block, self._block = bytes(self._block), bytearray()
                    self._header(block)

    def end(self) -> None:
        """End the stream. Raises DeployError if the archive is not complete."""
        self.close()
        if not self._over:
            raise DeployError("the archive is cut off")

    def close(self) -> None:
        """Remove a file that is not complete. A second call does nothing."""
        if self._out is not None:
            with suppress(OSError):
                os.unlink(self._name, dir_fd=self._folder)
            self._close_file()

    def _close_file(self) -> None:
        if self._out is not None:
            os.close(self._out)
            os.close(self._folder)
            self._out = None

    def _header(self, block: bytes) -> None:
        if not any(block):
            self._over = True
            return
        try:
            member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as fault:
            raise DeployError(f"it is not a tar archive: {fault}") from fault
        self._members += 1
        if self._members > self._most:
            raise DeployError(f"it has more than {self._most:,} files")
        size = member.size
        if member.type in _EXTRA:
            if not 0 <= size <= _MOST_EXTRA:
                raise DeployError(f"it holds a name that is {size} bytes long")
            self._extra, self._extra_type = bytearray(), member.type
        elif member.type in _UNASKED:
            raise DeployError("it has holes or headers that Muster did not ask for")
        else:
            size = self._begin(member)
        self._left, self._padding = size, -size % BLOCK
        if not size:
            self._finish()

    def _begin(self, member: tarfile.TarInfo) -> int:
        """Open the member's file, if it is taken. Returns how many bytes follow."""
        name, self._long_name, size = self._long_name or member.name, "", member.size
        if member.type in (tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE):
            size = 0
        if not 0 <= size <= self._room:
            raise DeployError(f"{name[:200]!r} in it has {amount(size)}: it announced {amount(self._announced)} in all")
        # Headers count too, so that a stream of empty files also reaches the limit.
        self._room -= min(self._room, size + BLOCK)
        try:
            self._open(member, name)
        except BadAnswer as fault:
            self.left_out.add(name, f"({fault.message})")
        except OSError as fault:
            self.left_out.add(name, f"cannot be written here: {fault.strerror}")
        return size

    def _open(self, member: tarfile.TarInfo, name: str) -> None:
        is_folder = member.type == tarfile.DIRTYPE or (member.type == tarfile.AREGTYPE and name.endswith("/"))
        parts = parts_of(name)
        if not parts:
            return  # the run folder itself
        if why := self._refuse(parts):
            self.left_out.add(name, why)
        elif is_folder:
            os.close(open_folder(self._root, parts, 0o700))
        elif member.type not in _FILES:
            leads = f" to {member.linkname[:200]!r}: use scp to copy what it points to" if member.issym() else ""
            self.left_out.add(name, f"is {_KINDS.get(member.type, 'not a regular file')}{leads}")
        else:
            folder = open_folder(self._root, parts[:-1], 0o700)
            try:
                self._out = os.open(parts[-1], _NEW, 0o600, dir_fd=folder)
            except OSError:
                os.close(folder)
                raise
            self._folder, self._name = folder, parts[-1]
            self._time, self.files = float(member.mtime), self.files + 1

    def _body(self, piece: memoryview) -> None:
        if self._extra is not None:
            self._extra += piece
        while self._out is not None and piece:
            try:
                piece = piece[os.write(self._out, piece) :]
            except OSError as fault:
                raise DeployError(
                    f"it cannot be written here: {fault.strerror}", "free some disk space, then: muster fetch"
                ) from fault

    def _finish(self) -> None:
        if self._out is not None:
            with suppress(OSError, OverflowError, ValueError):
                os.utime(self._out, (self._time, self._time))
            self._close_file()
        if self._extra is not None:
            data, self._extra = bytes(self._extra), None
            if self._extra_type == tarfile.GNUTYPE_LONGNAME:
                self._long_name = data.rstrip(b"\0").decode("utf-8", "surrogateescape")


def parts_of(name: str) -> Path:
    """A member's path as its parts; empty for the archive's root. Raises BadAnswer if it leads out or is too long."""
    if name.startswith("/") or len(name) > LONGEST_PATH:
        raise BadAnswer(
            "a file's name", f"a path of at most {LONGEST_PATH} characters that does not begin with /", name
        )
    parts = tuple(file_name(part) for part in name.split("/") if part not in ("", "."))
    if len(parts) > DEEPEST:
        raise BadAnswer("a file's name", f"at most {DEEPEST} folders deep", name)
    return parts
