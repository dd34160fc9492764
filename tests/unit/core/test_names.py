"""A name from a host, a container or a file is safe in paths and commands, or is refused where it is read."""

import pytest

from deploy.core import names
from deploy.core.errors import USAGE, BadAnswer, UsageError


def takes(check, text):
    """Whether a check accepts a text unchanged."""
    try:
        return check(text) == text
    except BadAnswer:
        return False


ODD = ["", ".", "..", "a..b", "../a", "a/b", "-a", ".a", "_a", "a b", "a\n", "ä", "a$", None, 7]


@pytest.mark.parametrize(
    ("check", "longest"), [(names.run_id, 100), (names.node_name, 100), (names.container_name, 255)]
)
def test_a_name_has_only_letters_digits_and_three_signs_and_is_no_path(check, longest):
    assert all(takes(check, text) for text in ("a", "7", "run-1_b.c", "a" * longest))
    assert not any(takes(check, text) for text in [*ODD, "a" * (longest + 1)])
    with pytest.raises(BadAnswer, match=f"^this: expected at most {longest} letters"):
        check("../a", "this")


def test_the_link_to_the_newest_run_is_no_run_and_strange_names_are_skipped():
    assert not takes(names.run_id, "latest")
    assert takes(names.node_name, "latest")
    assert names.run_ids(["run-1", "latest", ".x", "run-2"]) == {"run-1", "run-2"}


def test_a_container_id_is_short_or_full():
    assert all(takes(names.container_id, text) for text in ("0" * 12, "a" * 64))
    assert not any(takes(names.container_id, text) for text in ("0" * 11, "a" * 65, "g" * 12, "A" * 12, None))


def test_a_files_name_is_one_part_of_a_path():
    assert all(takes(names.file_name, text) for text in ("a", ".env", "-a", "ä b", "a" * 255))
    assert not any(takes(names.file_name, text) for text in ("", ".", "..", "a/b", "a\n", "a" * 256, "ä" * 128, None))


@pytest.mark.parametrize(
    ("host", "node"),
    [
        ("gpu-1", "gpu-1"),
        ("fd00::1", "fd00--1"),
        ("a..b", "a.b"),
        ("-_.a", "a"),
        ("...", "host"),
        ("a" * 200, "a" * 100),
    ],
)
def test_every_host_name_becomes_a_node_name(host, node):
    assert names.node_of(host) == node


def test_a_bad_typed_name_is_refused_with_its_option_and_how_to_list_names():
    assert names.check_run_id("--run", "run-1") == "run-1"
    assert names.check_run_id("--run", "") == ""
    with pytest.raises(UsageError, match=r"^--run: expected at most 100") as fault:
        names.check_run_id("--run", "a/b")
    assert (fault.value.code, "muster runs" in fault.value.hint) == (USAGE, True)
