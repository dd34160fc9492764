"""Cached layers: read once in any format of `docker save`, complete or not at all, and removed in time."""

from __future__ import annotations

import gzip
import io
import random
import tarfile
import threading
import tracemalloc

import pytest

from deploy.core.errors import DeployError
from deploy.send.image import compression, layer_cache
from deploy.send.image.compression import GZIP, ZSTD, decompress
from deploy.send.image.layer_cache import LayerCache
from deploy.send.image.model import digest

PIECE = 1 << 19  # small, so that a layer with several pieces is read quickly
# Random, so that compressed layers do not become tiny; one is larger than a piece.
BODIES = [random.Random(seed).randbytes(size) for seed, size in enumerate((1000, 300_000, PIECE + 12345))]
LAYERS = [digest(body) for body in BODIES]


def saved(bodies, form=lambda body: body):
    """An image as `docker save` streams it."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for number, body in enumerate([*map(form, bodies), b"{}" * 400]):
            entry = tarfile.TarInfo(f"{number}/layer.tar")
            entry.size = len(body)
            tar.addfile(entry, io.BytesIO(body))
    whole = written.getvalue()
    return [whole[start : start + 100_000] for start in range(0, len(whole), 100_000)]


class Source:
    """An image that counts how often it is read."""

    def __init__(self, chunks):
        self.chunks, self.reads = chunks, 0

    def __call__(self):
        self.reads += 1
        return iter(self.chunks)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(compression, "PIECE", PIECE)


@pytest.fixture
def cache(tmp_path):
    return LayerCache(tmp_path / "layers")


def fetch(cache, source, layers=LAYERS, codec=ZSTD):
    return cache.fetch(layers, codec, source, lambda read: None)


def unpacked(layer):
    return decompress(io.BufferedReader(io.BytesIO(b"".join(layer.part.chunks())))).read()


@pytest.mark.parametrize("form", [lambda body: body, gzip.compress, ZSTD.compress], ids=["plain", "gzip", "zstd"])
def test_layers_are_returned_unchanged_and_read_only_once(cache, form):
    source = Source(saved(BODIES, form))
    for _ in range(2):
        fetched = fetch(cache, source)
        for body, layer in zip(BODIES, LAYERS, strict=True):
            assert unpacked(fetched[layer]) == body
            assert (fetched[layer].size, fetched[layer].part.size) == (
                len(body),
                sum(map(len, fetched[layer].part.chunks())),
            )
    assert source.reads == 1


def test_each_codec_is_cached_separately(cache):
    source = Source(saved(BODIES))
    fetch(cache, source)
    fetched = fetch(cache, source, codec=GZIP)
    assert gzip.decompress(b"".join(fetched[LAYERS[2]].part.chunks())) == BODIES[2]
    fetch(cache, source)
    assert source.reads == 2


def test_a_damaged_file_is_created_again(cache, tmp_path):
    source = Source(saved(BODIES))
    fetch(cache, source)
    path = tmp_path / "layers" / f"{LAYERS[1].removeprefix('sha256:')}.zst"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert unpacked(fetch(cache, source)[LAYERS[1]]) == BODIES[1]
    assert source.reads == 2


def test_a_size_file_truncated_by_a_full_disk_is_written_again(cache, tmp_path):
    source = Source(saved(BODIES))
    fetch(cache, source)
    (tmp_path / "layers" / f"{LAYERS[1].removeprefix('sha256:')}.size").write_text("")
    assert LAYERS[1] not in cache.sizes(LAYERS)
    assert fetch(cache, source)[LAYERS[1]].size == cache.sizes(LAYERS)[LAYERS[1]] == len(BODIES[1])


@pytest.mark.parametrize("form", [gzip.compress, ZSTD.compress], ids=["gzip", "zstd"])
def test_a_layer_of_zeros_does_not_take_its_size_in_memory(form):
    packed = form(bytes(64 << 20))
    tracemalloc.start()
    try:
        whole = decompress(io.BufferedReader(io.BytesIO(packed)))
        assert sum(map(len, layer_cache._chunks(whole))) == 64 << 20
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("form", [gzip.compress, ZSTD.compress], ids=["gzip", "zstd"])
def test_a_damaged_layer_of_an_image_is_named_as_such(cache, form):
    def damaged(body):
        packed = form(body)
        return packed[:20] + bytes(len(packed) - 20)

    with pytest.raises(DeployError, match=r"docker save .*gave a damaged layer"):
        fetch(cache, Source(saved(BODIES, damaged)))


def test_an_image_that_ends_early_or_lacks_a_layer_is_an_error_and_leaves_no_parts(cache, tmp_path):
    with pytest.raises(DeployError, match="left out 1 of 3 layers"):
        fetch(cache, Source(saved(BODIES[:2])))
    with pytest.raises(DeployError, match="ended early"):
        fetch(cache, Source(saved(BODIES)[:5]), layers=[LAYERS[2]])
    assert not list((tmp_path / "layers").glob("*.part"))
    assert fetch(cache, Source(saved(BODIES)))


def test_partial_files_of_a_killed_push_are_removed(cache, tmp_path):
    (tmp_path / "layers").mkdir()
    (tmp_path / "layers/0011.part").write_bytes(b"half")
    fetch(cache, Source(saved(BODIES)))
    assert not list((tmp_path / "layers").glob("*.part"))


def test_two_pushes_at_once_read_the_image_once(cache, tmp_path):
    source = Source(saved(BODIES))
    fetched = []
    pushes = [
        threading.Thread(target=lambda: fetched.append(fetch(LayerCache(tmp_path / "layers"), source)))
        for _ in range(2)
    ]
    for push in pushes:
        push.start()
    for push in pushes:
        push.join(60)
    assert len(fetched) == 2
    assert source.reads == 1


def test_beyond_the_limit_the_least_recently_used_layer_goes_but_none_that_is_needed(tmp_path):
    cache = LayerCache(tmp_path / "layers", most=400_000)
    fetch(cache, Source(saved(BODIES[:2])), LAYERS[:2])
    fetch(cache, Source(saved(BODIES[2:])), LAYERS[2:])
    assert cache.find(LAYERS[2], ZSTD)
    assert cache.find(LAYERS[1], ZSTD)
    fetch(LayerCache(tmp_path / "layers", most=1000), Source([]), LAYERS[2:])
    assert cache.find(LAYERS[2], ZSTD)
    assert not cache.find(LAYERS[1], ZSTD)
    assert cache.sizes(LAYERS)[LAYERS[1]] == len(BODIES[1])
