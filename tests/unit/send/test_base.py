"""One base for all hosts: what may differ between them, and what may not."""

import pytest

from deploy.core.errors import DeployError
from deploy.send.packages import base


def described(python="3.12.16", libc=("glibc", "2.36")):
    return base.read({"python": python, "platform": {"machine": "x86_64", "libc": list(libc)}, "base": []}, "a base")


def test_of_two_versions_of_glibc_the_older_one_counts_for_both():
    hosts = {"a": described(), "b": described(libc=("glibc", "2.31")), "c": described(libc=("glibc", "2.9"))}
    assert base.same({host: hosts[host] for host in "ab"}).platform == "x86_64-manylinux_2_31"
    assert base.same(hosts).libc == ("glibc", "2.9")


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (described(python="3.11.2"), "b: .*Python 3.11.2 on x86_64 with glibc 2.36, not Python 3.12.16"),
        (described(libc=()), "b: .*with no libc"),
    ],
)
def test_another_python_or_another_libc_is_told_with_both(odd, words):
    with pytest.raises(DeployError, match=words):
        base.same({"a": described(), "b": odd, "c": described()})


def test_only_versions_that_an_index_could_have_are_the_bases():
    real = ["2.3.0a0+40ec155e58.nv24.3", "1!2.0.post1", "1.0.0-rc1", "1.0-1", "0.0.0+unknown", "1.0.dev20240101"]
    rows = [
        {"name": f"p{number}", "version": version, "requires": [], "extras": []}
        for number, version in enumerate([*real, "1.1build1", "0.1.43ubuntu1"])
    ]
    got = base.read({"python": "3.12.1", "platform": {"machine": "x86_64", "libc": []}, "base": rows}, "a base")
    assert [package.version for package in got.packages] == real
