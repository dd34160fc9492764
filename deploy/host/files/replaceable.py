"""Which files of a run can be had again: known by the layout that a program gives its cache, down to the file. Pure.

A folder's name says nothing: scripts keep their only checkpoint in ~/.cache. Nor does CACHEDIR.TAG: huggingface_hub
writes one into any `cache_dir`, beside what else is there. trainer/node/files/replaceable.py has the same patterns.
"""

from __future__ import annotations

import re

DOWNLOAD, COMPILED = "download", "compiled"
_HUB, _SHA1 = r"(?:models|datasets|spaces|kernels)--[^/]+", "[0-9a-f]{40}"
_TRITON = r"\.?triton(?:[-_]cache)?/(?:cache/|\d+/)?"
_PATTERNS = {
    DOWNLOAD: (
        # huggingface_hub, hf_xet, datasets; the token of a login is the user's
        rf"{_HUB}/blobs/(?:{_SHA1}|[0-9a-f]{{64}})(?:\.[0-9a-f]{{8}})?(?:\.incomplete)?",
        r"hub/blobs/(?P<two>[0-9a-f]{2})/(?P=two)[0-9a-f]{62}(?:\.refs)?",
        r"xet/[^/]+/chunk-cache/[\w=-]{2}/[\w=-]{40,50}/[\w=-]+",
        r"xet/[^/]+/shard-cache/[0-9a-f]{64}\.mdb",
        r"datasets/downloads/[0-9a-f]{64}(?:\.json|\.[0-9a-f]{64}(?:\.json)?)?",
        r"datasets/downloads/extracted/[0-9a-f]{64}(?:/.+)?",
        r"datasets/[^/]+/[^/]+/\d+\.\d+\.\d+/[0-9a-f]{16,64}/(?:[^/]+\.arrow|dataset_info\.json)",
        r"huggingface/(?:token|stored_tokens)",
        # of a cluster that ends with the run (muster/ray.py)
        r"\.ray/auth_token",
        # pip, uv
        r"http(?:-v2)?/(?:[0-9a-f]/){5}[0-9a-f]{56}(?:\.body)?",
        r"wheels/(?:[0-9a-f]{2}/){3}[0-9a-f]{50}/(?:[^/]+\.whl|origin\.json)",
        r"selfcheck/[0-9a-f]{56}",
        r"\.?uv(?:[-_]cache)?/archive-v\d+/[\w-]{20,22}/.+",
        r"(?:wheels|simple|sdists)-v\d+/(?:pypi|index|url|path|git|editable)/.+\.(?:rkyv|http|msgpack|rev|lock|whl|gz)",
        r"interpreter-v\d+/[0-9a-f]{16}/[0-9a-f]{16}\.msgpack",
        # of any program: it says nothing but that others may come
        r"CACHEDIR\.TAG",
    ),
    COMPILED: (
        # Python, numba
        r"__pycache__/[^/]+\.(?:pyc(?:\.\d+)?|nbi|nbc)",
        # Triton, inductor, torch's extensions (the lock of a killed build would stop other hosts), the driver's kernels
        rf"{_TRITON}(?:[A-Z2-7]{{52}}|[0-9a-f]{{64}})/[^/]+\.(?:cubin|hsaco|amdgcn|ptx|tt\w*ir|llir|so|source|json)",
        r"(?P<place>[a-z2-7]{2})/[a-z](?P=place)[a-z2-7]{49}(?:\.\w+)*",
        r"locks/[a-z][a-z2-7]{51}\.lock",
        r"(?:fxgraph/[a-z2-7]{2}|aotautograd)/[a-z][a-z2-7]{51}/[a-z2-7]{51}",
        r"torch_extensions/py\d+_\w+/[^/]+/(?:build\.ninja|\.ninja_\w+|lock|main\.cpp|cuda\.cu|[^/]+\.(?:o|so))",
        r"\.nv/ComputeCache/(?:index|[0-9a-f]/[0-9a-f]/[0-9a-f]+)",
        # matplotlib, fontconfig
        r"matplotlib/fontlist-v\d+[\w.-]*\.json",
        r"fontconfig/[0-9a-f-]{32,36}-le\d+\w*\.cache-\d+",
    ),
}
_KNOWN = [(kind, re.compile(rf"(?:.*/)?(?:{'|'.join(rows)})", re.DOTALL)) for kind, rows in _PATTERNS.items()]
# By size as well: a commit's name; an empty file that marks or locks something; a link from a name to its blob.
_REFERENCE = re.compile(rf"(?:.*/)?{_HUB}/refs/.+", re.DOTALL)
_MARK = re.compile(rf"(?:.*/)?(?:{_HUB}/\.no_exist/{_SHA1}/.+|[^/]+\.lock)", re.DOTALL)
_LINK = re.compile(rf"(?:.*/)?{_HUB}/snapshots/{_SHA1}/.+", re.DOTALL)


def kind_of(path: str, size: int | None) -> str:
    """DOWNLOAD or COMPILED for a file that can be had again; empty for one that may be the only copy.

    `size` in bytes; None for a link.
    """
    if size is None:
        return DOWNLOAD if _LINK.fullmatch(path) else ""
    if (size == 40 and _REFERENCE.fullmatch(path)) or (not size and _MARK.fullmatch(path)):
        return DOWNLOAD
    return next((kind for kind, known in _KNOWN if known.fullmatch(path)), "")
