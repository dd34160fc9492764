"""A lock is kept with its wheels; what a host or a disk made wrong of it is no lock."""

import hashlib
import json
from pathlib import Path

import pytest

from deploy.core.errors import BadAnswer
from deploy.packages import store, uv
from deploy.packages.store import Lock

WHEEL = b"a wheel"
DIGEST = hashlib.sha256(WHEEL).hexdigest()
LINES = (f"built==1.0 --hash=sha256:{DIGEST}", f"six==1.16.0 --hash=sha256:{'a' * 64} --hash=sha256:{'b' * 64}")
KEPT = Lock(LINES, ("nvidia-nccl-cu12",), {"torch": "2.13.0+cpu"}, {"built-1.0-py3-none-any.whl": WHEEL}, "c" * 64)


def test_a_lock_comes_back_as_it_was(tmp_path):
    store.keep("key", KEPT, tmp_path)
    assert store.find("key", tmp_path) == KEPT
    assert store.find("other", tmp_path) is None


def test_a_damaged_or_a_missing_wheel_makes_it_none(tmp_path):
    for damage in (lambda path: path.write_bytes(b"another"), lambda path: path.unlink()):
        store.keep("key", KEPT, tmp_path)
        damage(tmp_path / "key" / "built-1.0-py3-none-any.whl")
        assert store.find("key", tmp_path) is None


def test_a_torn_lock_is_none(tmp_path):
    store.keep("key", KEPT, tmp_path)
    path = tmp_path / "key" / "lock.json"
    path.write_text(path.read_text()[:100])
    assert store.find("key", tmp_path) is None
    path.write_text(json.dumps({"format": 99}))
    assert store.find("key", tmp_path) is None


@pytest.mark.holds("lock-lines")
@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://evil.example",
        "-e /",
        "six==1.16.0",
        f"six==1.16.0 --hash=sha256:{'a' * 64}\n--index-url https://evil.example",
        f"six @ file:///etc/passwd --hash=sha256:{'a' * 64}",
        f"six==1.16.0 --hash=sha256:{'a' * 64} --find-links /",
        f"six==1.16.0 ; x --hash=sha256:{'a' * 64}",
    ],
)
def test_a_host_can_put_nothing_else_into_a_lock_that_other_hosts_obey(line):
    with pytest.raises(BadAnswer):
        store.LOCK({"lock": [line], "left_out": [], "base": {}}, "its lock")


def test_the_same_lines_on_another_base_are_other_packages():
    assert KEPT.digest("a") == Lock(tuple(reversed(LINES))).digest("a")
    assert KEPT.digest("a") != KEPT.digest("b")


def test_there_is_one_uv_for_hosts_and_for_this_machine():
    locked = Path(__file__).resolve().parents[3] / "requirements/uv.txt"
    assert locked.read_text() == uv.PINS
    assert f"uv=={uv.VERSION} " in uv.PINS
