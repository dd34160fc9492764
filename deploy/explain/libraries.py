"""A shared library that the system does not have: its name in an error's words, and the package that has it. Pure."""

from __future__ import annotations

import re

from .words import compiled

# What torch and CUDA bring: no package of the system has them, and a missing one is another version of theirs.
_OF_TORCH = r"(?:torch|c10|caffe2|gloo|cuda|cudnn|cublas|cusparse|cusolver|cufft|curand|cupti|nccl|nv|mkl_|iomp)"
# One with a path is of a package of Python's, not of the system.
PATTERN = rf"(?<![\w./-])(lib(?!{_OF_TORCH})[\w.+-]{{1,80}}?\.so(?:\.\d{{1,4}}){{0,4}}): cannot open shared object file"
_MISSING = compiled(PATTERN)
_NAME = compiled(r"lib(?P<name>.+)\.so(?:\.(?P<number>[\d.]+))?")
# Debian's and Ubuntu's packages whose names do not follow from the library's, as `package` makes them.
_PACKAGES = {
    **dict.fromkeys(("libglib-2.0", "libgthread-2.0", "libgobject-2.0", "libgio-2.0"), "libglib2.0-0"),
    "libGLU": "libglu1-mesa",
    "libbz2": "libbz2-1.0",
    "libcrypto": "libssl3",
    "libmpi": "libopenmpi3",
    "libtcmalloc": "libgoogle-perftools4",
    "libxml2": "libxml2",
    "libz": "zlib1g",
}
# OpenCV's wheel misses these one after the other: who brings one of them brings both, or meets the next after a build.
# The first needs libxcb1.
_OPENCV = ("libgl1", "libglib2.0-0")


def missing(words: str) -> str:
    """The last library that these words miss, and that a package of the system has; empty if there is none."""
    return next(iter(_MISSING.findall(words)[-1:]), "")


def package(library: str) -> str:
    """The package of Debian and Ubuntu that has it: `libxcb.so.1` is in libxcb1.

    A library's package has its name and number in small letters, with `-` between two digits.
    """
    match = _NAME.fullmatch(library)
    if not match:
        return library
    name = f"lib{match['name']}"
    if name in _PACKAGES:
        return _PACKAGES[name]
    number = (match["number"] or "").partition(".")[0]
    plain = name.lower().replace("_", "-")
    return f"{plain}-{number}" if number and re.search(r"\d$", plain) else f"{plain}{number}"


def install(library: str) -> str:
    """The command that installs its package, as root, on Debian and Ubuntu, and what is missed next."""
    own = package(library)
    packages = _OPENCV if own in (*_OPENCV, "libxcb1") else (own,)
    return f"apt-get update && apt-get install -y {' '.join(packages)}"
