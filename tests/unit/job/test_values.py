"""Values that a user may write, at their bounds: each is parsed for the program, or is None, and then refused."""

from pathlib import Path

import pytest

from deploy.job import values

FOLDER = Path("/project")
secret = values.secret_from(FOLDER)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90.0), ("1.5h", 5400.0), ("24h", 86_400.0), ("1440m", 86_400.0), ("24.1h", None), ("0s", None)],
)
def test_a_grace_period_has_a_unit_and_is_at_most_a_day(text, seconds):
    assert values.grace(text) == seconds


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4", 4),
        ("7b", 7),
        ("2K", 2 << 10),
        ("3m", 3 << 20),
        ("16g", 16 << 30),
        ("3", None),
        ("17g", None),
        ("4 g", None),
    ],
)
def test_a_size_is_written_like_dockers_and_may_equal_its_bounds(text, number):
    assert values.size_within(4, 16 << 30)(text) == number


@pytest.mark.parametrize(
    ("port", "good"), [("0", False), ("1", True), ("65535", True), ("65536", False), ("", False), ("x", False)]
)
def test_the_port_of_a_host_is_a_valid_port_number(port, good):
    assert (values.destination(f"ops@gpu-1:{port}") is not None) == good


def test_a_secret_is_a_variable_or_a_file_and_a_file_needs_its_path():
    assert secret("TOKEN") == values.Secret("TOKEN", None)
    assert secret({"name": "TOKEN", "file": "token"}) == values.Secret("TOKEN", FOLDER / "token")
    assert secret({"name": "key.pem", "file": "/k", "as_file": True}) == values.Secret(
        "key.pem", Path("/k"), as_file=True
    )


@pytest.mark.parametrize(
    "table",
    [
        {"name": "key", "as_file": True},
        {"name": "TOKEN", "file": "token", "as_file": "yes"},
        {"name": "TOKEN", "file": ""},
        {"name": "key.pem", "file": "token"},
        {"name": "TOKEN", "files": "token"},
        {"file": "token"},
        ["TOKEN"],
    ],
)
def test_an_incomplete_or_malformed_secret_is_refused(table):
    assert secret(table) is None
