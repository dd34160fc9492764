"""A node takes on its host only what nobody has, in the order of waiting, whatever other users write there."""

import fcntl
import json
import os
import struct
import time

import pytest

from trainer.node.queue import claims
from trainer.node.queue.claims import DEPLOYS, HOLDS, RESTS, RUNS, WAITS, Claim, Claims, choose, rival

GPUS = {f"GPU-{index}": index for index in range(4)}


def claim(number, state, *gpus, whole=False):
    return Claim(number, f"{number:x}", f"r{number}", "alice", gpus, whole, state)


OWN = claim(5, RESTS)


@pytest.mark.parametrize("state", [DEPLOYS, HOLDS, RUNS])
def test_a_gpu_that_somebody_has_is_not_taken(state):
    other = claim(9, state, "GPU-1")
    assert choose(2, GPUS, OWN, [other]) == (("GPU-0", "GPU-2"), "")
    assert choose([0, 1], GPUS, OWN, [other])[0] == ()
    who = "the deploy of r9 (alice)" if state == DEPLOYS else "run r9 (alice)"
    assert choose("auto", GPUS, OWN, [other])[1] == f"3 of 4 GPUs are free: {who} has GPU 1"


def test_the_run_that_waits_longest_is_next_and_a_resting_one_blocks_nobody():
    assert choose(1, GPUS, OWN, [claim(4, WAITS)]) == ((), "run r4 (alice) waits there and is next")
    assert choose(1, GPUS, OWN, [claim(4, RESTS), claim(6, WAITS)]) == (("GPU-0",), "")
    assert choose(1, GPUS, OWN, [claim(4, WAITS, whole=True)])[0], "it wants something else"


def test_a_gpu_on_which_somebody_computes_is_not_taken():
    assert choose(2, GPUS, OWN, [], {"GPU-0": "somebody"}) == (("GPU-1", "GPU-2"), "")
    assert choose([0], GPUS, OWN, [], {"GPU-0": "somebody"}) == ((), "0 of 1 GPUs are free: somebody has GPU 0")


def test_a_node_without_gpus_gets_a_host_without_another_run():
    own = claim(5, RESTS, whole=True)
    assert choose(0, GPUS, own, [claim(4, RUNS, "GPU-0")])[1] == "run r4 (alice) is there"
    assert choose(0, {}, own, [claim(4, HOLDS, whole=True)])[1]
    assert choose(0, {}, own, [claim(4, RESTS, whole=True)]) == ((), "")


@pytest.fixture
def node(tmp_path):
    def made(number, **more):
        token = f"{number:x}"
        about = {"number": number, "token": token, "run": f"r{number}", "user": "alice", "control": "laptop"}
        about |= {"gpus": [], "waits": False, "whole": False, "state": RESTS, "returns": True, **more}
        own = tmp_path / f"run-{number}-{token}"
        if not own.exists():
            own.write_text(json.dumps(about) + "\n")
            own.with_name(f"{own.name}.lock").touch()
        return Claims(json.dumps(about), own, tmp_path)

    return made


def killed(node, path):
    """Leave the node's claim as a kill long ago would have left it."""
    os.close(node._own)
    os.close(node._lock)
    for file in (path, path.with_name(f"{path.name}.lock")):
        os.utime(file, (1, 1))


def test_nodes_see_each_others_current_claims(node):
    one, two = node(1), node(2)
    one.write(state=HOLDS, gpus=["GPU-1"])
    (seen,) = two.others()
    assert (seen.number, seen.state, seen.gpus) == (1, HOLDS, ("GPU-1",))
    one.leave()
    assert two.others() == []


def test_an_ended_nodes_claim_counts_for_a_while_only_if_its_engine_restarts_it(node, monkeypatch, tmp_path):
    watcher = node(9)
    for number, returns in ((1, True), (2, False)):
        killed(node(number, state=RUNS, returns=returns), tmp_path / f"run-{number}-{number}")
    assert [seen.number for seen in watcher.others()] == [1]
    monkeypatch.setattr(claims, "_RETURN_S", 0.0)
    assert watcher.others() == []


def test_a_restarted_node_keeps_the_gpus_of_its_run_but_not_those_of_a_wait(node, tmp_path):
    for state, has in ((RUNS, ("GPU-1",)), (HOLDS, ()), (WAITS, ())):
        before = node(1)
        before.write(state=state, gpus=["GPU-1"])
        killed(before, tmp_path / "run-1-1")
        again = node(1)
        assert (again.own.state, again.own.gpus) == (state if has else RESTS, has)
        killed(again, tmp_path / "run-1-1")


@pytest.mark.parametrize(
    "make",
    [
        lambda path: os.mkfifo(path),
        lambda path: path.symlink_to("/etc/passwd"),
        lambda path: path.mkdir(),
        lambda path: path.write_bytes(b"\0" * 100_000),
        lambda path: path.write_text("[" * 3999),
        lambda path: path.write_text('{"gpus": {"a": 7}}\n'),
        lambda path: path.write_text('{"state": 7, "run": ["\x1b[2J"], "gpus": [7]}\n'),
    ],
    ids=["fifo", "link", "folder", "zeros", "deep", "gpus", "types"],
)
@pytest.mark.parametrize("name", ["run-7-ff", "claim-7-ff"])
def test_odd_files_of_other_users_block_nobody(node, tmp_path, make, name):
    own = node(1)
    make(tmp_path / name)
    assert all(not seen.gpus and seen.shown.isprintable() for seen in own.others())


@pytest.mark.parametrize("odd", ["[" * 3999, '{"state": "runs", "gpus": ' + "[" * 500 + "]" * 500 + "}", "7", "\0" * 9])
def test_a_node_starts_again_whatever_its_own_claim_has_become(node, tmp_path, odd):
    killed(node(1), tmp_path / "run-1-1")
    (tmp_path / "run-1-1").write_text(odd)
    again = node(1)
    again.write(state=HOLDS)
    assert (again.own.state, again.own.gpus) == (HOLDS, ())


def test_a_deploy_at_work_is_seen_as_long_as_it_touches_its_claim(node, tmp_path):
    own, path = node(1), tmp_path / "claim-3-cc"
    path.write_text(json.dumps({"token": "cc", "run": "train.py", "user": "bob", "gpus": ["GPU-2"], "waits": False}))
    (seen,) = own.others()
    assert (seen.state, seen.gpus) == (DEPLOYS, ("GPU-2",))
    for then in (-100, 100):
        os.utime(path, (time.time() + then, time.time() + then))
        assert own.others() == []


def test_a_user_who_may_only_read_a_claim_neither_keeps_it_alive_nor_blocks_its_owner(node, tmp_path):
    watcher, path = node(9), tmp_path / "run-1-1"
    held = node(1, state=RUNS, gpus=["GPU-1"], returns=False)
    killed(held, path)
    lock = path.with_name("run-1-1.lock")
    with path.open() as text, lock.open() as locked:
        for file in (text, locked):
            fcntl.flock(file, fcntl.LOCK_EX)
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0))
        assert watcher.others() == []
        again = node(1, state=RUNS, gpus=["GPU-1"], returns=False)
        assert [claim.gpus for claim in watcher.others()] == [("GPU-1",)], "it touches what it cannot lock"
        again.leave()


def test_a_claim_whose_text_has_another_token_counts_for_nothing(node, tmp_path):
    own = node(1)
    (tmp_path / "claim-7-ff").write_text(json.dumps({"token": "ee", "run": "r", "user": "u", "gpus": ["GPU-1"]}))
    assert own.others() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives files to another user")
def test_many_files_of_one_user_hide_no_claim_of_another(node, tmp_path):
    watcher, other = node(9), node(1, state=RUNS, gpus=["GPU-1"])
    for number in range(1000):
        file = tmp_path / f"run-{number}-aaaa"
        file.touch()
        os.chown(file, 12345, 12345)
    assert [claim.gpus for claim in watcher.others()] == [("GPU-1",)]
    assert other.own.gpus == ("GPU-1",)


def test_a_waiting_run_with_a_very_long_reason_is_seen_by_the_others(node):
    watcher, waits = node(9), node(1)
    waits.write(state=WAITS, why="\U0001f600" * 5000)
    assert [(claim.number, claim.state) for claim in watcher.others()] == [(1, WAITS)]


def test_a_claim_that_vanishes_during_a_read_hides_no_other_claim(node, tmp_path, monkeypatch):
    watcher, others = node(9), [node(number) for number in range(1, 4)]
    scan = os.scandir

    class Scan(list):
        def __enter__(self):
            (tmp_path / "run-2-2").unlink()
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(os, "scandir", lambda folder: Scan(scan(folder)))
    assert [claim.number for claim in watcher.others()] == [1, 3]
    assert len(others) == 3


def test_two_runs_that_take_the_same_gpu_together_see_each_other():
    mine = claim(5, HOLDS, "GPU-1")
    for state in (DEPLOYS, HOLDS, RUNS):
        assert rival(mine, [claim(4, state, "GPU-1")])
        assert not rival(mine, [claim(4, state, "GPU-2")])
    assert not rival(mine, [claim(4, WAITS), claim(4, RESTS, "GPU-1")])
    assert rival(claim(5, HOLDS, whole=True), [claim(4, RUNS, "GPU-0")])
    assert not rival(claim(5, HOLDS, whole=True), [claim(4, HOLDS, "GPU-0")])
