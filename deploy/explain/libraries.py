"""Missing shared libraries: their names in errors, and the packages that have them; also for some modules. Pure."""

from .words import compile_limited

# Libraries of torch and CUDA: no system package has them; if one is missing, torch or CUDA has the wrong version.
_OF_TORCH = r"(?:torch|c10|caffe2|gloo|cuda|cudnn|cublas|cusparse|cusolver|cufft|curand|cupti|nccl|nv|mkl_|iomp)"
# A library with a path is part of a Python package, not of the system.
PATTERN = rf"(?<![\w./-])(lib(?!{_OF_TORCH})[\w.+-]{{1,80}}?\.so(?:\.\d{{1,4}}){{0,4}}): cannot open shared object file"
_MISSING = compile_limited(PATTERN)
_NAME = compile_limited(r"(?P<name>lib.+)\.so(?:\.(?P<number>[\d.]+))?")
# Libraries whose package is named after them and their number; below, those with other packages. Only half of all
# libraries in Debian 12's index follow that rule, so for any other library only the index knows the package.
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
# OpenCV's wheel needs both: if only the first is installed, the second is missing after the next build. The first one
# needs libxcb1.
_OPENCV = ("libgl1", "libglib2.0-0")
# Packages on an index that have another name than their module. setuptools 81 warns about pkg_resources, and 82 no
# longer has it.
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
    """The last missing library in these words that a system package can have; empty if there is none."""
    return next(iter(_MISSING.findall(words)[-1:]), "")


def package(library: str) -> str:
    """The package of Debian and Ubuntu with a library: `libxcb.so.1` is in libxcb1. Empty if only their index knows it.

    By the rule, the package's name is the library's name and number in lowercase, with `-` between two digits.
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
    """The command that installs the library's package, as root, on Debian and Ubuntu, or that finds the package.

    For one of OpenCV's libraries, it installs all of them, because the next one would be missing after that.
    """
    own = package(library)
    if not own:
        return f"apt-get update && apt-get install -y apt-file && apt-file update && apt-file search {library}"
    packages = _OPENCV if own in (*_OPENCV, "libxcb1") else (own,)
    return f"apt-get update && apt-get install -y {' '.join(packages)}"
