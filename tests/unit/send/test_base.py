"""One base for all hosts: what may differ between them and what may not."""

from types import SimpleNamespace

import pytest

from deploy.core.errors import DeployError
from deploy.send.packages import base, install
from deploy.send.packages.places import on_all_places


def described(python="3.12.16", libc=("glibc", "2.36")):
    return base.read({"python": python, "platform": {"machine": "x86_64", "libc": list(libc)}, "base": []}, "a base")


def test_the_oldest_glibc_counts_for_all_hosts():
    hosts = {"a": described(), "b": described(libc=("glibc", "2.31")), "c": described(libc=("glibc", "2.9"))}
    assert base.same({host: hosts[host] for host in "ab"}).platform == "x86_64-manylinux_2_31"
    assert base.same(hosts).libc == ("glibc", "2.9")


def test_a_hosts_description_is_remembered_as_it_was_given(tmp_path, monkeypatch):
    """An older glibc on another host counts for that run only; a host with a wrong remembered answer is asked again."""
    said, asked = {"a": described(), "b": described(libc=("glibc", "2.17"))}, list[str]()

    def work(*hosts):
        places = [SimpleNamespace(name=name, who=name) for name in hosts]
        made = install._Work(places, SimpleNamespace(each=on_all_places), tmp_path)
        made._has = {name: SimpleNamespace(base=("layer",)) for name in hosts}
        return made._described()

    monkeypatch.setattr(install._Work, "_describe", lambda _, place: (asked.append(place.name), said[place.name])[1])
    assert work("a", "b").platform == "x86_64-manylinux_2_17"
    assert work("a").platform == "x86_64-manylinux_2_36"
    assert work("a", "b").platform == "x86_64-manylinux_2_17"
    assert sorted(asked) == ["a", "b"]
    said |= dict.fromkeys("ab", described(python="3.13.1"))
    base.remember(tmp_path, "b", ("layer",), said["b"])
    assert work("a", "b").python == "3.13.1"


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (described(python="3.11.2"), "b: .*Python 3.11.2 on x86_64 with glibc 2.36, not Python 3.12.16"),
        (described(libc=()), "b: .*with no libc"),
    ],
)
def test_another_python_or_libc_is_refused_with_both_named(odd, words):
    with pytest.raises(DeployError, match=words):
        base.same({"a": described(), "b": odd, "c": described()})


def test_only_versions_that_an_index_could_have_count_for_the_base():
    real = ["2.3.0a0+40ec155e58.nv24.3", "1!2.0.post1", "1.0.0-rc1", "1.0-1", "0.0.0+unknown", "1.0.dev20240101"]
    rows = [
        {"name": f"p{number}", "version": version, "requires": [], "extras": []}
        for number, version in enumerate([*real, "1.1build1", "0.1.43ubuntu1"])
    ]
    got = base.read({"python": "3.12.1", "platform": {"machine": "x86_64", "libc": []}, "base": rows}, "a base")
    assert [package.version for package in got.packages] == real
