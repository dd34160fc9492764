"""Which hosts a fetch asks for their files, given the free space on this machine's disk."""

import io
import os
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from deploy.core.errors import DeployError
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


def reported(part, order, came):
    """What a fetch says of one host: its notes, and its warnings."""
    notes, warnings = [], []
    gather._tell("gpu-a", part, order, frozenset(came), SimpleNamespace(note=notes.append, warn=warnings.append))
    return notes, warnings


def order(*wanted, home=(), staged=(), left=None):
    files = [dict.fromkeys(names, Stamp(1, 0)) for names in (wanted, home, staged)]
    return gather._Order(Selection(files[0], [], files[1]), Path("/nonexistent"), files[2], left or {})


def test_a_fetch_says_what_came_what_was_here_and_how_to_get_what_stays_there():
    whole = gather._Part(unpack.LeftOut(), None)
    assert reported(whole, order("a"), "a") == (["gpu-a: 1 file came"], [])
    some = order(
        "a", "b", home=("c",), staged=("d",), left={"work/.lock": 0, "work/hub": 2_000_000, "cache": 5_000_000}
    )
    assert reported(whole, some, "abd") == (
        [
            "gpu-a: 2 files came; 2 were here already; 7.0 MB that can be downloaded again stays there "
            "(cache, work/hub): --only cache copies it"
        ],
        [],
    )


def test_a_fetch_names_files_that_did_not_arrive_unless_a_reason_is_known():
    _, (warning,) = reported(gather._Part(unpack.LeftOut(), None), order("b", "a", "c"), "c")
    assert warning.startswith("gpu-a: 2 files did not arrive, the first is 'a': it was removed, or is not readable")
    assert reported(gather._Part(unpack.LeftOut(), DeployError("gpu-a: cut off")), order("a"), "")[1] == []
    refused = unpack.LeftOut()
    for number in range(30):
        refused.add(f"./{number}", "is a link")
    _, warnings = reported(gather._Part(refused, None), order("a"), "")
    assert warnings[0] == "gpu-a: not copied: './0' is a link"
    assert warnings[-1] == f"gpu-a: and {30 - len(refused.named)} others not copied"
    assert len(warnings) == len(refused.named) + 1 < 30


def test_a_host_whose_list_of_files_never_ends_is_left_alone(monkeypatch):
    monkeypatch.setattr(gather, "MOST_LIST", 1000)
    sent = []

    def receive(argv, take):
        for _ in range(100):
            take(b"x" * 400)
            sent.append(400)

    with pytest.raises(DeployError, match="its list of files is longer than"):
        gather.files(SimpleNamespace(name="gpu-a", receive=receive), "r1")
    assert sum(sent) == 800
