"""The layers of one push. The first host's thread that asks for a layer compresses it, once for all hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

from ..core.errors import DeployError
from ..engine import images
from .code_layer import CodeLayer
from .compression import Codec, CompressedLayer, compress
from .layer_cache import LayerCache
from .model import Base
from .spool import Spool


class LayerSource:
    """Layers of `base`, from the cache or (with `local`) the local engine, and the layer `code`.

    Calls `tell(read)` with the bytes read so far from the local engine. Several threads may use it.
    """

    def __init__(
        self, base: Base, code: CodeLayer | None, local: bool, cache: LayerCache, tell: Callable[[int], None]
    ) -> None:
        self._base, self._code, self._local, self._cache, self._tell = base, code, local, cache, tell
        # Two locks: a host that lacks only the code need not wait until the base is read for another host.
        self._code_lock, self._base_lock = Lock(), Lock()
        self._layers: dict[tuple[str, str], CompressedLayer] = {}

    def get(self, layers: Sequence[str], codec: Codec) -> list[CompressedLayer]:
        """These layers, each once. Raises DeployError if one is not available anywhere."""
        if self._code:
            with self._code_lock:
                self._compress_code(self._code, codec)
        if any((layer, codec.name) not in self._layers for layer in layers):
            with self._base_lock:
                self._read_base(layers, codec)
        return [self._layers[layer, codec.name] for layer in dict.fromkeys(layers)]

    def weight(self, layers: Sequence[str]) -> int:
        """Bytes of these layers as tar files, as far as known: before reading any, what the base says of its size."""
        known = self.sizes() | ({self._code.digest: self._code.content.size} if self._code else {})
        unread = set(layers) - set(known)
        whole = self._base.size if unread and unread == set(self._base.layers) else 0
        return whole + sum(known[layer] for layer in set(layers) - unread)

    def sizes(self) -> dict[str, int]:
        """Bytes of the layers that may be left out, as tar files, where known."""
        return self._cache.sizes(self._base.layers)

    def _compress_code(self, code: CodeLayer, codec: Codec) -> None:
        layer = code.digest
        if (layer, codec.name) not in self._layers:
            spool = Spool(self._cache.folder)
            for piece in compress(code.content.read(), codec):
                spool.write(piece)
            self._layers[layer, codec.name] = CompressedLayer(layer, code.content.size, spool.size, spool.read)

    def _read_base(self, layers: Sequence[str], codec: Codec) -> None:
        if all((layer, codec.name) in self._layers for layer in layers):
            return
        if not self._local:
            raise DeployError(
                f"the host lacks layers of {self._base.name}, and this machine does not have that image",
                f"pull it here: docker pull {self._base.name}",
            )
        # We read all layers, not only these: `docker save` takes most of the time, and the next host may need others.
        cached = self._cache.fetch(self._base.layers, codec, lambda: images.save(self._base.name), self._tell)
        self._layers.update({(layer, codec.name): compressed for layer, compressed in cached.items()})
