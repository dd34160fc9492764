"""Which hosts a fetch asks for their files, by the room on the disk here."""

from pathlib import Path

from deploy.core.results import Results
from deploy.host.files import gather
from deploy.host.files.listing import Selection, Stamp


def orders(size, count, hosts=64):
    wanted = {f"{number}.txt": Stamp(size, 0) for number in range(count)}
    return Results(
        {f"h{n}": gather._Order(Selection(wanted, [], {}), Path("/nonexistent"), {}, {}) for n in range(hosts)}
    )


def test_the_small_files_of_many_hosts_fit_where_a_gigabyte_is_free():
    assert not gather._refuse_full(orders(1000, 3), 1 << 30).faults


def test_hosts_that_send_nothing_need_no_room():
    assert not gather._refuse_full(orders(0, 0), 0).faults


def test_files_that_do_not_fit_are_refused_by_name():
    faults = gather._refuse_full(orders(100_000_000, 1, hosts=3), 600_000_000).faults
    assert list(faults) == ["h2"]
    assert "h2: its files need up to" in faults["h2"].message
