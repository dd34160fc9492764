"""The progress of a push in words: a line for each host, within limited room."""

import pytest

from deploy.report import plain_view
from deploy.report.plain_view import Transfers


@pytest.fixture
def at(monkeypatch):
    """Returns a function that sets the time."""
    clock = [0.0]
    monkeypatch.setattr(plain_view.time, "monotonic", lambda: clock[0])
    return lambda now: clock.__setitem__(0, now)


def test_each_host_has_bytes_rate_and_time_left(at):
    transfers = Transfers(["a", "b", "c"])
    at(100.0)
    transfers.note_progress("a", 0, 10_000_000)
    at(102.0)
    transfers.note_progress("a", 5_000_000, 10_000_000)
    at(100.0)
    transfers.note_progress("b", 0, 4_000_000)
    at(101.0)
    transfers.note_progress("b", 4_000_000, 4_000_000)
    at(102.0)
    rows = dict(transfers.rows(10))
    assert rows["a"] == "5.0 MB of 10 MB, 2.5 MB/s, 2 s left"
    assert rows["b"] == "4.0 MB of 4.0 MB, 4.0 MB/s, in 1.0 s, loading"
    assert rows["c"] == "waiting"


def test_the_machine_that_reads_the_base_comes_first_and_a_second_push_starts_over(at):
    transfers = Transfers(["a"])
    at(1.0)
    transfers.note_progress("a", 10, 10)
    at(2.0)
    transfers.note_progress("this machine", 1, 10)
    at(2.0)
    assert [name for name, _ in transfers.rows(10)] == ["this machine", "a"]
    at(5.0)
    transfers.note_progress("a", 0, 1_000_000)
    at(5.5)
    assert dict(transfers.rows(10))["a"] == "1.0 MB to send"
    at(6.0)
    transfers.note_progress("a", 500_000, 1_000_000)
    at(6.0)
    assert dict(transfers.rows(10))["a"] == "500 kB of 1.0 MB, 500 kB/s, 1 s left"


def test_in_little_room_the_active_hosts_are_shown_and_the_rest_counted(at):
    names = [f"gpu-{number}" for number in range(400)]
    transfers = Transfers(names)
    for name in names[:100]:
        at(1.0)
        transfers.note_progress(name, 5, 5)
    for name in names[390:]:
        at(1.0)
        transfers.note_progress(name, 1, 5)
    at(2.0)
    rows = transfers.rows(6)
    assert [name for name, _ in rows] == [*names[390:395], "and 395 more"]
    assert rows[-1][1] == "100 of 400 done"


def test_a_pull_whose_total_grows_is_shown_as_unfinished(at):
    transfers = Transfers(["a"])
    for now, came, total in ((1.0, 0, 0), (2.0, 1_000_000, 1_000_000), (3.0, 1_000_000, 9_000_000)):
        at(now)
        transfers.note_progress("a", came, total, "docker.io")
        assert ("loading" in dict(transfers.rows(9))["a"]) == (came == total > 0)
    assert dict(transfers.rows(9))["a"] == "1.0 MB of 9.0 MB, 500 kB/s, 16 s left, from docker.io"


def test_a_transfer_from_this_machine_names_no_source(at):
    transfers = Transfers(["a"])
    at(1.0)
    transfers.note_progress("a", 0, 1_000_000, "this machine")
    at(2.0)
    transfers.note_progress("a", 500_000, 1_000_000, "this machine")
    assert dict(transfers.rows(9))["a"] == "500 kB of 1.0 MB, 500 kB/s, 1 s left"
