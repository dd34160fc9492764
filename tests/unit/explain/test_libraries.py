"""A library that the system lacks: the hint is a command that installs its package, or finds it."""

import pytest

from deploy.explain import libraries

# From the index of Debian 12 (`apt-file search`); libssl1.1 is from Ubuntu 20.04.
IN = """
libEGL.so.1 libegl1, libGLU.so.1 libglu1-mesa, libICE.so.6 libice6, libX11.so.6 libx11-6, libpng16.so.16 libpng16-16,
libbz2.so.1.0 libbz2-1.0, libcrypto.so.3 libssl3, libcrypto.so.1.1 libssl1.1, libssl.so.3 libssl3, libz.so.1 zlib1g,
libssl.so.1.1 libssl1.1, libmpi.so.40 libopenmpi3, libopen-rte.so.40 libopenmpi3, libibverbs.so.1 libibverbs1,
libmlx5.so.1 ibverbs-providers, libtcmalloc.so.4 libgoogle-perftools4, libusb-1.0.so.0 libusb-1.0-0,
libxml2.so.2 libxml2, libstdc++.so.6 libstdc++6, libsqlite3.so.0 libsqlite3-0, libespeak-ng.so.1 libespeak-ng1,
libgeos_c.so.1 libgeos-c1v5, libOSMesa.so.8 libosmesa6, libsndfile.so.1 libsndfile1, libavcodec.so.59 libavcodec59
"""


@pytest.mark.parametrize("row", IN.replace("\n", " ").split(","))
def test_the_package_of_a_missing_library_is_installed(row):
    library, package = row.split()
    assert libraries.install(library) == f"apt-get update && apt-get install -y {package}"


@pytest.mark.parametrize("library", ["libxcb.so.1", "libGL.so.1", "libgthread-2.0.so.0"])
def test_for_a_library_of_opencv_everything_its_wheel_needs_is_installed(library):
    assert libraries.install(library).endswith("install -y libgl1 libglib2.0-0")


@pytest.mark.parametrize("library", ["libglog.so.1", "libmpi.so.12", "libpython3.11.so.1.0", "libnss3.so", "libm.so.6"])
def test_the_package_of_another_library_is_looked_up_not_guessed(library):
    assert libraries.package(library) == ""
    assert libraries.install(library).endswith(f"install -y apt-file && apt-file update && apt-file search {library}")


def test_the_last_missing_library_counts_but_none_of_torch_or_a_python_package():
    words = "ImportError: {}: cannot open shared object file: No such file or directory\n"
    assert libraries.missing(words.format("libxcb.so.1") + words.format("libSM.so.6")) == "libSM.so.6"
    for other in ("libcudart.so.11.0", "libtorch_cpu.so", "/venv/lib/libfast.so", "numpy.libs/libgfortran-0.so"):
        assert libraries.missing(words.format(other)) == ""
