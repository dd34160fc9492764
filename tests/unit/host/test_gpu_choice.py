"""Which GPUs a deploy gets: only free ones, and only if nobody has waited for them longer."""

import json

import pytest

from deploy.core.errors import DeployError, UsageError
from deploy.host import gpus
from deploy.host.gpu_choice import choose, yield_to_others

MINE, HERS, HIS = "aa", "bb", "cc"


def host(*rows, count=4):
    """A host with `count` GPUs, named GPU-0 and up; `rows`: more lines of its answer."""
    return gpus.parse([*(f"gpu {index}, GPU-{index}, 4, 81559, 0, H100" for index in range(count)), *rows])


def claim(number, token, *own, waits=False, whole=False):
    about = {"token": token, "run": "train.py", "user": "alice", "control": "laptop"}
    return f"claim {number} {token} alice " + json.dumps({**about, "gpus": own, "waits": waits, "whole": whole})


def container(run, label="", requests=None, state="running", waits=""):
    return "given " + json.dumps([f"/muster-{run}", state, run or None, "alice", label, requests, waits])


def chosen(asked, *rows, **more):
    return [gpu.index for gpu in choose(asked, host(*rows), MINE, **more).gpus]


@pytest.mark.parametrize(
    "holder",
    [
        "app GPU-1, 7, 61230, python",
        container("r1", "GPU-1"),
        container("r1", "GPU-1", state="created"),
        container("r1", requests=[{"Count": 0, "DeviceIDs": ["1"]}]),
        container("", requests=[{"Count": 0, "DeviceIDs": ["GPU-1"]}]),
        container("", requests=[{"Driver": "cdi", "Count": 0, "DeviceIDs": ["nvidia.com/gpu=1"]}]),
        claim(5, HERS, "GPU-1"),
    ],
    ids=["process", "label", "created", "number", "somebody's container", "CDI", "deploy"],
)
def test_a_gpu_that_somebody_has_is_not_given_away(holder):
    assert chosen(2, holder) == [0, 2]
    assert choose((1,), host(holder), MINE).taken
    assert not choose((1,), host(holder), MINE).gpus
    assert choose(4, host(holder), MINE).taken.startswith("3 free GPUs of 4, and 4 asked for: ")


@pytest.mark.parametrize(
    "nobody",
    [
        container("", requests=[{"Count": -1, "DeviceIDs": None}]),
        container("", requests=[{"Driver": "cdi", "Count": 0, "DeviceIDs": ["nvidia.com/gpu=all"]}]),
        "app GPU-1, 7, 30, nvidia-cuda-mps-server",
        claim(5, HERS, whole=True),
        "claim 5 {",
        "claim x " + json.dumps(["GPU-1"]),
    ],
    ids=["a tool that watches GPUs", "one by CDI", "the driver's server", "a CPU run", "torn", "odd"],
)
def test_a_run_without_gpus_blocks_nobody(nobody):
    assert chosen(2, nobody) == [0, 1]


def test_all_gpus_are_given_despite_other_processes_but_not_while_a_run_has_one():
    assert chosen("auto", "app GPU-1, 7, 300, Xorg") == [0, 1, 2, 3]
    assert not chosen("auto", "app GPU-1, 7, 300, Xorg", alone=True)
    assert not chosen("auto", container("r1", "GPU-3"))
    assert not chosen("auto", container("old", requests=[{"Count": -1}])), "a run of an older Muster has all of them"


def test_a_gpu_with_memory_in_use_by_an_unseen_process_is_not_free():
    used = gpus.parse(["gpu 0, GPU-0, 40210, 46068, 0, L40S"])
    assert (
        choose(1, used, MINE).taken
        == "0 free GPUs of 1, and 1 asked for: a process that is not visible from there has GPU 0"
    )


def test_whoever_waits_longest_is_next_and_nobody_overtakes():
    rows = [claim(7, HERS, waits=True), claim(9, HIS, waits=True)]
    assert choose(1, host(*rows), HERS).gpus
    assert choose(1, host(*rows), HIS).taken == "the deploy of train.py (alice@laptop) waits there for GPUs"
    assert choose(1, host(*rows), MINE).taken


def test_a_host_without_gpus_is_free_if_no_other_run_is_on_it():
    assert not choose("auto", host(count=0), MINE, alone=True).taken
    assert choose("auto", host(container("r1"), count=0), MINE, alone=True).taken == "run r1 (alice) runs there"
    assert choose(0, host(claim(3, HERS, whole=True)), MINE, alone=True).is_temporary
    assert not choose("auto", host(container("r1"), count=0), MINE).taken, "two runs may share a CPU"


def test_the_file_owner_is_the_user_of_a_claim_and_a_claim_speaks_only_for_itself():
    line = claim(5, HERS, "GPU-1")
    assert (
        choose((1,), host(line.replace(" alice ", " eve ")), MINE).taken
        == "the deploy of train.py (eve@laptop) has GPU 1"
    )
    assert choose((1,), host(line.replace(" alice ", " uid:7 ")), MINE).taken.startswith(
        "the deploy of train.py (uid 7@"
    )
    assert chosen((1,), line.replace(f" {HERS} ", f" {HIS} ")) == [1]


def test_two_deploys_that_claim_the_same_gpus_at_once_see_each_other():
    own = choose((0, 1), host(), MINE)
    lost = yield_to_others(own, host(claim(5, HERS, "GPU-1")).claims, MINE, alone=False)
    assert (lost.gpus, lost.is_temporary) == ((), True)
    for other in (claim(5, HERS, "GPU-2"), claim(5, MINE, "GPU-1"), run(5, HERS, "rests"), run(5, HERS, "waits")):
        assert yield_to_others(own, host(other).claims, MINE, alone=False) == own
    cpu = choose(0, host(), MINE, alone=True)
    assert yield_to_others(cpu, host(run(5, HERS, "runs", "GPU-1")).claims, MINE, alone=True).taken
    assert yield_to_others(cpu, host(run(5, HERS, "runs", "GPU-1")).claims, MINE, alone=False) == cpu


def run(number, token, state, *own, whole=False):
    about = {"token": token, "run": "r2", "user": "bob", "control": "laptop", "gpus": own, "whole": whole}
    return f"claim {number} {token} bob " + json.dumps(
        {**about, "waits": state == "waits", "state": state, "why": "r1"}
    )


def test_a_waiting_node_has_the_gpus_of_its_claim_not_all_that_its_container_sees():
    waiting = container("r2", requests=[{"Count": -1}], waits=HERS)
    assert chosen("auto", waiting, run(3, HERS, "rests")) == [0, 1, 2, 3], "its turn is on another host"
    assert chosen(2, waiting, run(3, HERS, "holds", "GPU-0")) == [1, 2]
    assert choose((0,), host(waiting, run(3, HERS, "runs", "GPU-0")), MINE).taken == "run r2 (bob) has GPU 0"
    assert choose(1, host(waiting, run(3, HERS, "waits")), MINE).taken == "run r2 (bob) waits there for GPUs"
    assert not chosen(1, waiting), "without its claim, it may have every one"


def test_a_host_without_gpus_is_taken_by_a_run_whose_wait_is_over():
    waiting = container("r2", waits=HERS)
    held = [run(3, HERS, state, whole=True) for state in ("holds", "runs")]
    taken = [choose("auto", host(waiting, each, count=0), MINE, alone=True).taken for each in held]
    assert taken == ["run r2 (bob) runs there"] * 2
    assert not choose("auto", host(waiting, run(3, HERS, "rests", whole=True), count=0), MINE, alone=True).taken


def test_no_gpus_are_given_if_the_free_ones_cannot_be_determined():
    broken = host("gpu-code 18", "gpu Failed to initialize NVML", count=0)
    with pytest.raises(DeployError, match="could not tell which GPUs are free"):
        choose(1, broken, MINE)
    with pytest.raises(DeployError, match="the engine does not say"):
        choose(1, host("given-error no answer"), MINE)
    with pytest.raises(DeployError, match="nvidia-smi does not say which processes compute"):
        choose((0,), host("app-error Unknown Error"), MINE)


@pytest.mark.parametrize("asked", [5, (0, 4)])
def test_a_request_for_gpus_that_do_not_exist_is_refused_without_waiting(asked):
    with pytest.raises(UsageError, match="the host has 4 GPUs"):
        choose(asked, host(), MINE, alone=True)
