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
