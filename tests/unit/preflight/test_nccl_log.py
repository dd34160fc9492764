"""The reader of NCCL's own log, on excerpts of public logs with the facts that a person reads in them."""

from pathlib import Path

import pytest

from deploy.preflight import nccl_log
from tests.unit.preflight import public_logs
from trainer.node.probe.rehearsal import NCCL, TELLING

EXCERPTS = (Path(__file__).parent / "nccl_logs.txt").read_text().split("=== ")[1:]


def parts(excerpt):
    """The facts that a person reads in an excerpt, by name, and its lines."""
    _, expected, *lines = excerpt.splitlines()
    pairs = [word.partition("=") for word in expected.replace(" ", "\n").split("\n")]
    values, last = {}, ""
    for name, sign, value in pairs:
        if sign and name in ("network", "between", "devices", "library", "sockets", "direct", "nvls", "reason"):
            values[name], last = value, name
        else:
            values[last] += " " + name + sign + value
    return values, lines


@pytest.mark.parametrize("excerpt", EXCERPTS, ids=lambda excerpt: excerpt.partition(" ")[0])
def test_a_public_log_says_what_a_person_reads_in_it(excerpt):
    expected, lines = parts(excerpt)
    log = nccl_log.read(lines)
    assert log.network == expected["network"]
    assert ",".join(sorted(set(log.between.values()))) == expected["between"]
    assert ",".join(log.devices.values()) == expected["devices"]
    assert log.library == expected["library"]
    assert log.sockets is (expected["sockets"] == "yes")
    assert log.direct is {"yes": True, "no": False}.get(
        expected.get("direct", "no" if log.between and not log.sockets else "")
    )
    assert expected.get("reason", "") in log.reason


@pytest.mark.parametrize("excerpt", public_logs.split()[0], ids=lambda excerpt: excerpt.name)
def test_a_public_log_outside_the_score_is_read_as_a_person_reads_it(excerpt):
    # A warning from net_ib.cc does not show that the ranks communicate through it, so the reader reports nothing.
    unsure = {"sockets"} if excerpt.name == "async-event" else set()
    assert {fact for fact, mark in excerpt.marks().items() if mark != public_logs.RIGHT} == unsure
    assert public_logs.WRONG not in excerpt.marks().values()


@pytest.mark.parametrize("lines", [parts(each)[1] for each in EXCERPTS] + [each.lines for each in public_logs.load()])
def test_the_lines_that_a_rehearsal_sends_are_read_like_the_whole_log(lines):
    sent = [line.partition(NCCL)[2].strip() or line for line in lines if TELLING.search(line)]
    assert nccl_log.read(sent) == nccl_log.read(lines)


def test_libfabric_over_efa_is_no_socket_and_one_rank_on_sockets_counts_for_all():
    efa = ["NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>", "NCCL INFO NET/OFI Selected Provider is efa"]
    assert (nccl_log.read(efa).network, nccl_log.read(efa).sockets) == ("Libfabric", False)
    assert nccl_log.read(["NCCL INFO Using network IB", "NCCL INFO Using network Socket"]).sockets


def test_the_device_of_a_connection_is_the_one_with_its_number():
    log = nccl_log.read(
        [
            "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_3:1/IB ; OOB eth0:10.0.0.1<0>",
            "NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/1/GDRDMA",
            "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
        ]
    )
    assert log.device_of((0, 8)) == "mlx5_3"
    assert log.device_of((0, 1)) == ""
    assert nccl_log.summary(log) == "NCCL by IB (mlx5_3) with GPUDirect; in a host P2P"


def test_only_the_beginning_of_an_endless_line_is_read():
    assert nccl_log.read(["NET/IB : GPU Direct RDMA " * 10_000 + "Disabled"]) == nccl_log.NcclLog()


def test_malformed_lines_are_ignored():
    assert nccl_log.read(["Channel 00 : x -> y via", "Using [0]", "\x00\x1b[31m", "via NET/"]) == nccl_log.NcclLog()
