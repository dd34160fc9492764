"""Which hosts a fetch asks for their files, given the free space on this machine's disk."""

import io
import os
import tarfile
from pathlib import Path

from deploy.core.results import Results
from deploy.host.files import gather, unpack
from deploy.host.files.listing import Selection, Stamp


def orders(size, count, hosts=64):
    wanted = {f"{number}.txt": Stamp(size, 0) for number in range(count)}
    return Results(
        {f"h{n}": gather._Order(Selection(wanted, [], {}), Path("/nonexistent"), {}, {}) for n in range(hosts)}
    )


def test_the_small_files_of_many_hosts_fit_into_a_free_gigabyte():
    assert not gather._refuse_full(orders(1000, 3), 1 << 30).faults


def test_hosts_that_send_nothing_need_no_room():
    assert not gather._refuse_full(orders(0, 0), 0).faults


def test_files_that_do_not_fit_are_refused_by_name():
    faults = gather._refuse_full(orders(100_000_000, 1, hosts=3), 600_000_000).faults
    assert list(faults) == ["h2"]
    assert "h2: its files need up to" in faults["h2"].message


def test_a_link_that_a_fetch_leaves_out_is_named_with_its_target(tmp_path):
    """The message once said only that `./work/data` is a link, so nobody knew which files were missing."""
    packed, root = io.BytesIO(), os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        link = tarfile.TarInfo("./work/data")
        link.type, link.linkname = tarfile.SYMTYPE, "/mnt/big\x1b[2J"
        archive.addfile(link)
    unpacker = unpack.Unpacker(root, 1 << 20, lambda parts: "", 10)
    unpacker.feed(packed.getvalue())
    unpacker.end()
    os.close(root)
    assert unpacker.left_out.named == [
        r"'./work/data' is a link to '/mnt/big\x1b[2J': use scp to copy what it points to"
    ]
    assert not list(tmp_path.iterdir())
