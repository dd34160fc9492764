"""NCCL's own log, read: excerpts of public logs, each with what a person reads in it."""

from pathlib import Path

import pytest

from deploy.preflight import nccl_log

EXCERPTS = (Path(__file__).parent / "nccl_logs.txt").read_text().split("=== ")[1:]


def parts(excerpt):
    """What a person reads in an excerpt, by name, and its lines."""
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
    assert log.nvls is {"yes": True}.get(expected.get("nvls", ""))
    assert expected.get("reason", "") in log.reason


def test_the_device_of_a_way_is_the_one_with_its_number():
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


def test_rubbish_says_nothing():
    assert nccl_log.read(["Channel 00 : x -> y via", "Using [0]", "\x00\x1b[31m", "via NET/"]) == nccl_log.NcclLog()
