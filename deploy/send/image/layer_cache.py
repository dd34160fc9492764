"""A cache of base images' compressed layers on this machine. `docker save` reads a whole image: it runs once per base.

A layer is a file <diff id>.<codec> in ~/.cache/muster/layers. Next to it are the digest of its bytes and its size as a
tar file. Each use checks the digest first. The cache removes damaged files and, above its limit, the files that have
not been used for longest.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import tarfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import IO, cast

from ...core.errors import DeployError
from ...engine import images
from ...run.files import locks
from ..road import cargo
from .compression import CODECS, DAMAGED, Codec, CompressedLayer, compress, decompress
from .model import Base

MOST = 20 << 30  # bytes in total
_PART, _SAVE_S = ".part", 3600.0


class LayerCache:
    """Layers in `folder`: at most `most` bytes, not counting those that were just asked for.

    Two pushes may share it: `note` gets a sentence about the push that this one waits for.
    """

    def __init__(self, folder: Path, most: int = MOST, note: Callable[[str], None] = lambda _: None) -> None:
        self.folder, self._most, self._note = folder, most, note

    def sizes(self, layers: Iterable[str]) -> dict[str, int]:
        """The sizes of these layers as tar files, if known. A size stays known after the layer is removed."""
        files = {layer: self.folder / f"{_name(layer)}.size" for layer in layers}
        known = {layer: path.read_text() for layer, path in files.items() if path.exists()}
        return {layer: int(size) for layer, size in known.items() if size.isdecimal()}  # a full disk may have cut it

    def find(self, layer: str, codec: Codec) -> CompressedLayer | None:
        """A layer from this cache; None if it is missing or damaged."""
        path, digest = self._path(layer, codec), self._path(layer, codec, ".sha256")
        try:
            if _digest(path) != digest.read_text() or layer not in self.sizes([layer]):
                path.unlink()
                return None
            os.utime(path)  # so that it counts as used just now
        except FileNotFoundError:
            return None
        return self._compressed(layer, codec)

    def fetch(
        self, layers: Collection[str], codec: Codec, image: Callable[[], Iterable[bytes]], tell: Callable[[int], None]
    ) -> dict[str, CompressedLayer]:
        """Get `layers`, compressed by `codec`; those not in the cache come from `image()`, the output of `docker save`.

        `tell(bytes)` is called as that stream is read. Waits while another push fills the cache. Raises DeployError if
        the stream ends early or lacks a layer, or if the disk is full.
        """
        try:
            with self._locked():
                compressed = {layer: cached for layer in layers if (cached := self.find(layer, codec))}
                if lacking := set(layers) - set(compressed):
                    compressed |= self._taken(image(), lacking, codec, tell)
                self._prune({self._path(layer, codec) for layer in layers})
        except DAMAGED as fault:
            raise DeployError(f"docker save ended early, or gave a damaged layer: {fault}", "push again") from fault
        except OSError as fault:
            raise DeployError(
                f"cannot write layers to {self.folder}: {fault.strerror}",
                "free some disk space there, or set XDG_CACHE_HOME",
            ) from fault
        if absent := sorted(set(layers) - set(compressed)):
            raise DeployError(f"docker save left out {len(absent)} of {len(layers)} layers: {', '.join(absent)}")
        return compressed

    def _taken(
        self, image: Iterable[bytes], layers: Collection[str], codec: Codec, tell: Callable[[int], None]
    ) -> dict[str, CompressedLayer]:
        layers_read: dict[str, CompressedLayer] = {}
        with tarfile.open(fileobj=cast(IO[bytes], _Reader(image, tell)), mode="r|") as tar:
            for member in tar:
                content = tar.extractfile(member)
                # Only its digest tells which layer a file is, because engines name files differently. No layer is
                # smaller than this.
                if content and member.size >= 512 and not member.name.endswith("json"):
                    compressed = self._keep(_chunks(decompress(content)), layers, codec)
                    layers_read |= {compressed.layer: compressed} if compressed else {}
        return layers_read

    def _keep(self, content: Iterable[bytes], wanted: Collection[str], codec: Codec) -> CompressedLayer | None:
        """Compress a stream into a file, and keep the file if it is one of the wanted layers."""
        raw, whole, size = hashlib.sha256(), hashlib.sha256(), 0

        def counted() -> Iterator[bytes]:
            nonlocal size
            for chunk in content:
                raw.update(chunk)
                size += len(chunk)
                yield chunk

        part = self.folder / f"{secrets.token_hex(8)}{_PART}"
        try:
            with part.open("wb") as file:
                for piece in compress(counted(), codec):
                    file.write(piece)
                    whole.update(piece)
            layer = f"sha256:{raw.hexdigest()}"
            if layer not in wanted:
                return None
            (self.folder / f"{_name(layer)}.size").write_text(str(size))
            self._path(layer, codec, ".sha256").write_text(whole.hexdigest())
            part.replace(self._path(layer, codec))
        finally:
            part.unlink(missing_ok=True)
        return self._compressed(layer, codec)

    def _compressed(self, layer: str, codec: Codec) -> CompressedLayer:
        path = self._path(layer, codec)
        return CompressedLayer(layer, self.sizes([layer])[layer], cargo.of_file(path, path.stat().st_size))

    def _prune(self, spared: Collection[Path]) -> None:
        endings = {f".{name}" for name in CODECS}
        files = [(path.stat(), path) for path in self.folder.iterdir() if path.suffix in endings]
        room = self._most
        for status, path in sorted(files, key=lambda entry: -entry[0].st_mtime):
            room -= 0 if path in spared else status.st_size
            if room < 0 and path not in spared:
                path.unlink()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # Only the owner may read the content of an image, as with the engine.
        with locks.wait_for(locks.own_folder(self.folder) / "lock", _SAVE_S, self._note):
            # No other push writes while this one holds the lock, so a push that was killed left this part.
            for part in self.folder.glob(f"*{_PART}"):
                part.unlink()
            yield

    def _path(self, layer: str, codec: Codec, ending: str = "") -> Path:
        return self.folder / f"{_name(layer)}.{codec.name}{ending}"


class BaseLayers:
    """The layers of one push's base, from the cache or (with `local`) from the local engine, read once for all hosts.

    Calls `tell(read)` with the bytes read so far from the local engine. Several threads may use it.
    """

    def __init__(self, base: Base, local: bool, cache: LayerCache, tell: Callable[[int], None]) -> None:
        self._base, self._local, self._cache, self._tell = base, local, cache, tell
        self._lock = Lock()
        self._layers: dict[tuple[str, str], CompressedLayer] = {}

    def get(self, layers: Sequence[str], codec: Codec) -> list[CompressedLayer]:
        """These layers, each once. Raises DeployError if one is not available anywhere."""
        with self._lock:
            if any((layer, codec.name) not in self._layers for layer in layers):
                self._read_base(codec)
        return [self._layers[layer, codec.name] for layer in dict.fromkeys(layers)]

    def weight(self, layers: Sequence[str]) -> int:
        """The known bytes of these layers as tar files; if no size is known of any layer, the base's reported size."""
        known = self.sizes()
        unread = set(layers) - set(known)
        whole = self._base.size if unread and unread == set(self._base.layers) else 0
        return whole + sum(known[layer] for layer in set(layers) - unread)

    def sizes(self) -> dict[str, int]:
        """The sizes, as tar files, of the layers that may be left out, if known."""
        return self._cache.sizes(self._base.layers)

    def _read_base(self, codec: Codec) -> None:
        if not self._local:
            raise DeployError(
                f"the host lacks layers of {self._base.name}, and this machine does not have that image",
                f"pull it here: docker pull {self._base.name}",
            )
        # Read all layers, not only these: `docker save` takes most of the time, and the next host may need others.
        cached = self._cache.fetch(self._base.layers, codec, lambda: images.save(self._base.name), self._tell)
        self._layers.update({(layer, codec.name): compressed for layer, compressed in cached.items()})


class _Reader:
    """A stream of chunks as a file for tarfile: in stream mode, it accepts chunks of any size."""

    def __init__(self, chunks: Iterable[bytes], tell: Callable[[int], None]) -> None:
        self._chunks, self._tell, self._read = iter(chunks), tell, 0

    def read(self, _: int) -> bytes:
        chunk = next(self._chunks, b"")
        self._read += len(chunk)
        self._tell(self._read)
        return chunk


def _name(layer: str) -> str:
    return layer.removeprefix("sha256:")


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(1 << 20):
        yield chunk


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
