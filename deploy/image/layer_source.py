"""The layers of one push, each packed once for all hosts, by whichever host's thread asks first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

from ..core.errors import DeployError
from ..engine import images
from .compression import Codec, Packed, packed
from .layer_cache import LayerCache
from .model import Base, digest


class Supply:
    """Layers of `base`, from the cache or the local engine (where `local` says it has it), and the layer `code`.

    `tell(read)` is called with bytes as the local engine is read. Safe to use from several threads.
    """

    def __init__(
        self, base: Base, code: bytes | None, local: bool, cache: LayerCache, tell: Callable[[int], None]
    ) -> None:
        self._base, self._code, self._local, self._cache, self._tell = base, code, local, cache, tell
        # Two locks: a host that lacks only the code does not wait while the base is read for another.
        self._code_lock, self._base_lock = Lock(), Lock()
        self._packed: dict[tuple[str, str], Packed] = {}

    def take(self, layers: Sequence[str], codec: Codec) -> list[Packed]:
        """These layers, each once. Raises DeployError when there is nowhere to take one from."""
        if self._code is not None:
            with self._code_lock:
                self._pack_code(self._code, codec)
        if any((layer, codec.name) not in self._packed for layer in layers):
            with self._base_lock:
                self._read_base(layers, codec)
        return [self._packed[layer, codec.name] for layer in dict.fromkeys(layers)]

    def weight(self, layers: Sequence[str]) -> int:
        """Bytes of these layers as tar files, as far as known: before any is read, the base's own word on its size."""
        known = self.sizes() | ({digest(self._code): len(self._code)} if self._code is not None else {})
        unread = set(layers) - set(known)
        whole = self._base.size if unread and unread == set(self._base.layers) else 0
        return whole + sum(known[layer] for layer in set(layers) - unread)

    def sizes(self) -> dict[str, int]:
        """Bytes of the base's layers as tar files, where known."""
        return self._cache.sizes(self._base.layers)

    def _pack_code(self, code: bytes, codec: Codec) -> None:
        layer = digest(code)
        if (layer, codec.name) not in self._packed:
            self._packed[layer, codec.name] = packed(layer, code, codec)

    def _read_base(self, layers: Sequence[str], codec: Codec) -> None:
        if all((layer, codec.name) in self._packed for layer in layers):
            return
        if not self._local:
            raise DeployError(
                f"layers of {self._base.name} are missing there, and this machine does not have it to send",
                f"pull it here: docker pull {self._base.name}",
            )
        # All layers, not only those asked for: the time goes into `docker save`, and the next host may ask for others.
        cached = self._cache.fetch(self._base.layers, codec, lambda: images.save(self._base.name), self._tell)
        self._packed.update({(layer, codec.name): packed for layer, packed in cached.items()})
