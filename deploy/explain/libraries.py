"""Shared libraries that the system lacks: the name in an error's words, and the package; of some modules too. Pure."""

from .words import compiled

# What torch and CUDA bring: no package of the system has them, and a missing one is another version of theirs.
_OF_TORCH = r"(?:torch|c10|caffe2|gloo|cuda|cudnn|cublas|cusparse|cusolver|cufft|curand|cupti|nccl|nv|mkl_|iomp)"
# One with a path is of a package of Python's, not of the system.
PATTERN = rf"(?<![\w./-])(lib(?!{_OF_TORCH})[\w.+-]{{1,80}}?\.so(?:\.\d{{1,4}}){{0,4}}): cannot open shared object file"
_MISSING = compiled(PATTERN)
_NAME = compiled(r"(?P<name>lib.+)\.so(?:\.(?P<number>[\d.]+))?")
# Those whose package has their name and number, and others. Of all libraries in Debian 12's index half follow that
# rule, so of any other one only the index says which package has it.
_BY_NAME = (
    "libaio libarchive libasound libatomic libavcodec libavformat libcairo libcups libcurl libdbus-1 libdrm libEGL "
    "libespeak-ng libexpat libfabric libffi libfontconfig libfreetype libgbm libgcc_s libgdal libgfortran libGL "
    "libglfw libgomp libhwloc libibverbs libICE libjemalloc liblmdb liblz4 liblzma libmagic libmpg123 libnl-3 "
    "libnl-route-3 libnuma libodbc libOpenGL libpango-1.0 libpci libpmix libpng16 libportaudio libpq libquadmath "
    "librdmacm libreadline libSM libsndfile libsox libsqlite3 libssl libstdc++ libtbb libtcmalloc_minimal libtiff "
    "libtinfo libunwind libusb-1.0 libuuid libvulkan libwebp libX11 libxcb libXcomposite libXcursor libXdamage "
    "libXext libXfixes libXi libXinerama libXrandr libXrender libXtst libzstd"
)
_PACKAGES = {
    **dict.fromkeys(("libglib-2.0", "libgthread-2.0", "libgobject-2.0", "libgio-2.0"), "libglib2.0-0"),
    **dict.fromkeys(("libmpi.so.40", "libmpi_cxx.so.40", "libopen-rte.so.40", "libopen-pal.so.40"), "libopenmpi3"),
    "libGLU": "libglu1-mesa",
    "libOSMesa": "libosmesa6",
    "libbz2": "libbz2-1.0",
    "libcrypto.so.3": "libssl3",
    "libgeos_c": "libgeos-c1v5",
    "libmlx5": "ibverbs-providers",
    "libssl.so.1.1": "libssl1.1",
    "libcrypto.so.1.1": "libssl1.1",
    "libtcmalloc": "libgoogle-perftools4",
    "libxml2": "libxml2",
    "libz": "zlib1g",
}
# OpenCV's wheel misses these one after the other: who brings one of them brings both, or meets the next after a build.
# The first needs libxcb1.
_OPENCV = ("libgl1", "libglib2.0-0")
# The packages of an index that are not called as their module is. setuptools 81 warns of pkg_resources, 82 has none.
OF_MODULES = {
    "Bio": "biopython",
    "Crypto": "pycryptodome",
    "OpenSSL": "pyOpenSSL",
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "git": "GitPython",
    "hydra": "hydra-core",
    "pkg_resources": "setuptools<81",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "umap": "umap-learn",
    "yaml": "PyYAML",
}


def missing(words: str) -> str:
    """The last library that these words miss, and that a package of the system has; empty if there is none."""
    return next(iter(_MISSING.findall(words)[-1:]), "")


def package(library: str) -> str:
    """The package of Debian and Ubuntu that has it: `libxcb.so.1` is in libxcb1. Empty if only their index tells.

    By its name, a library's package has name and number in small letters, with `-` between two digits.
    """
    match = _NAME.fullmatch(library)
    name, number = match.groups("") if match else (library, "")
    if own := _PACKAGES.get(library) or _PACKAGES.get(name):
        return own
    if name not in _BY_NAME.split():
        return ""
    number, plain = number.partition(".")[0], name.lower().replace("_", "-")
    return f"{plain}-{number}" if number and plain[-1].isdigit() else f"{plain}{number}"


def install(library: str) -> str:
    """The command that installs its package, as root, on Debian and Ubuntu, and what is missed next; or finds it."""
    own = package(library)
    if not own:
        return f"apt-get update && apt-get install -y apt-file && apt-file update && apt-file search {library}"
    packages = _OPENCV if own in (*_OPENCV, "libxcb1") else (own,)
    return f"apt-get update && apt-get install -y {' '.join(packages)}"
