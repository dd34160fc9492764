"""From a rehearsal's answers to the host at fault: its own error makes it the cause; a victim's error does not."""

import dataclasses

import pytest

from deploy.core.errors import CommandEnded
from deploy.host.reached import NoAnswer
from deploy.preflight.rehearsal import Outcome, Scene, findings, summary
from tests.unit.preflight import public_logs

HOSTS = ("a", "b", "c")
LOAD = "load data with 2 workers"
SCENE = Scene(
    HOSTS,
    "gloo",
    "10.0.0.1:29500",
    addresses={host: frozenset({f"10.0.0.{number}"}) for number, host in enumerate(HOSTS, 1)},
    interfaces=dict.fromkeys(HOSTS, "eth1"),
)


def rank(step="meet", **more):
    """What a rank reported: a right sum, unless `more` has something else."""
    return {"local": 0, "step": step, "at": step.split()[0], **(more or {"right": True, "seconds": 0.25})}


def answer(*ranks, phase="together"):
    return Outcome({"phase": phase, "torch": "2.13", "ranks": list(ranks or [rank()]), "warnings": []})


def found(**outcomes):
    """The findings; hosts that are not named succeed."""
    return findings({host: outcomes.get(host, answer()) for host in HOSTS}, SCENE)


def test_a_successful_rehearsal_finds_nothing_and_reports_what_it_showed():
    assert found() == []
    assert summary({host: answer() for host in HOSTS}, 20_000_000) == "3 ranks met, and summed 20 MB in 0.25 s"


def test_an_error_of_no_rank_counts_beside_ranks_that_failed():
    lost = [rank(error="TimeoutError: no answer"), rank(error="TimeoutError: no answer", local=1)]
    told = found(b=Outcome({"phase": "together", "torch": "2.13", "error": "OSError: broken", "ranks": lost}))
    assert "OSError: broken" in told[0].text
    assert told[0].hosts == ("b",)


FOLDER = "write to /muster/run"
FULL = "OSError: [Errno 28] No space left on device"
CLOSED = "PermissionError: [Errno 1] Operation not permitted"
KILLED = "RuntimeError: worker is killed by signal: Killed."
NO_THREAD = "RuntimeError: can't start new thread"
BUS = "RuntimeError: worker is killed by signal: Bus error"


@pytest.mark.parametrize(
    ("failed", "cause"),
    [
        (rank(FOLDER, error=f"{FULL} [0 MB free]", seen=["disk_full"]), "disk-full"),
        (rank(FOLDER, error=f"{FULL} [0 inodes free]", seen=["no_inodes"]), "inodes-full"),
        # XFS has no free inodes as soon as it has no free space
        (rank(FOLDER, error=f"{FULL} [0 MB free; 0 inodes free]", seen=["disk_full", "no_inodes"]), "disk-full"),
        (rank(FOLDER, error="OSError: [Errno 122] Disk quota exceeded", seen=["no_inodes"]), "disk-full"),
        (rank(FOLDER, error=f"{CLOSED} [mounted read-only]", seen=["read_only"]), "home-readonly"),
        (rank(LOAD, error=f"{BUS} [/dev/shm: 1 of 64 MB free]", seen=["shm_full"]), "shm-small"),
        (rank(LOAD, error=f"{KILLED} [the kernel has killed 1]", seen=["oom_kill"]), "memory-low"),
        (rank("all_reduce", signal=9, words="[the kernel has killed 2]", seen=["oom_kill"]), "memory-low"),
        (rank("start 64 threads", error=f"{NO_THREAD} [the limit]", seen=["max"]), "process-limits"),
        (rank("compute on GPU 0", error="OutOfMemoryError: CUDA out of memory. Tried ..."), "gpu-busy"),
        (rank("meet", error="RehearsalError: 10.0.0.1:29500: Address already in use", seen=["busy"]), "port-busy"),
        (rank("form a group (gloo)", error="RuntimeError: Unable to find address for: eth9"), "interface-missing"),
        (
            rank("see the run's folder", error="RehearsalError: it does not see the folder", seen=["unseen"]),
            "mount-missing",
        ),
        (
            rank(
                "see the run's folder",
                error="PermissionError: [Errno 13] Permission denied: '/muster/run/here' [no right to write there]",
                seen=["no_right"],
            ),
            "mount-closed",
        ),
    ],
)
def test_a_failure_with_evidence_for_its_cause_is_a_fault_of_its_host(failed, cause):
    told = found(b=answer(failed), a=answer(rank(error="RuntimeError: Connection closed by peer")))
    assert [(finding.cause, finding.hosts, finding.level) for finding in told] == [(cause, ("b",), "fault")]
    assert "report" not in told[0].fix


@pytest.mark.parametrize(
    ("failed", "cause"),
    [
        (rank(FOLDER, error=f"{FULL} [/muster/run; 70000 MB free; 9000 inodes free]"), "disk-full"),
        (rank(FOLDER, error=f"{CLOSED} [/muster/run; 70000 MB free; of uid 1000, mode 700, this is uid 1000]"),
         "home-readonly"),
        (rank(LOAD, error=f"{BUS} [/dev/shm: 900 of 1000 MB free]"), "shm-small"),
        (rank(LOAD, signal=7), "shm-small"),
        (rank(LOAD, error=f"{KILLED} [the kernel has killed 0 for memory]"), "memory-low"),
        (rank("all_reduce", signal=9), "memory-low"),
        (rank("start 64 threads", error=NO_THREAD), "process-limits"),
        (rank("all_reduce", signal=11), "proof-failed"),
        (rank(FOLDER, error="OSError: mounted read-only; 0 inodes free"), "proof-failed"),
    ],
)  # fmt: skip
def test_a_failure_with_several_possible_causes_is_quoted_and_not_sure(failed, cause):
    (told,) = found(b=answer(failed), a=answer(rank(error="RuntimeError: Connection closed by peer")))
    assert (told.cause, told.hosts, told.level) == (cause, ("b",), "could not tell")
    assert failed.get("error", "SIG") in told.text
    assert bool(told.or_else) == (cause != "proof-failed")


@pytest.mark.parametrize(
    ("code", "cause", "words"),
    [(137, "memory-low", "SIGKILL"), (139, "proof-failed", "SIGSEGV"), (132, "proof-failed", "SIGILL")],
)
def test_a_container_ended_by_a_signal_is_reported_with_the_signals_name(code, cause, words):
    told = found(b=Outcome({}, NoAnswer.of(CommandEnded("`sh ...`", code, ""))))
    assert (told[0].cause, told[0].hosts) == (cause, ("b",))
    assert words in told[0].text


def test_a_container_that_does_not_start_is_judged_from_the_engines_error():
    words = (
        "docker: Error response from daemon: invalid mount config for type bind: bind source path does not exist: /x."
    )
    assert found(c=Outcome({}, NoAnswer.of(CommandEnded("`sh ...`", 125, words))))[0].cause == "mount-missing"


def test_a_host_that_did_not_join_is_named_with_the_link_that_failed():
    timed_out = (
        "DistNetworkError: The client socket has timed out after 30000ms while trying to connect to (10.0.0.1, 29500)."
    )
    told = found(
        a=answer(rank(error="RehearsalError: node 2 is missing", missed=2)),
        b=answer(rank(error="RehearsalError: node 2 is missing", missed=2)),
        c=answer(rank(error=timed_out)),
    )
    assert [(finding.hosts, finding.link) for finding in told] == [(("c",), ("c", "a"))]


def test_a_pair_that_lost_each_other_is_suspected_at_both_ends_on_its_interface():
    lost = "RuntimeError: Timed out waiting 30000ms for recv operation to complete, remote=[10.0.0.3]:40123"
    told = found(b=answer(rank("all_reduce of 20 MB", error=lost)))
    assert (told[0].hosts, told[0].link) == (("b", "c"), ("b", "c"))
    assert "b (eth1) and c (eth1)" in told[0].text


def test_if_no_host_shows_a_fault_the_finding_could_not_tell():
    lost = answer(rank("all_reduce", error="RuntimeError: Connection closed by peer"))
    told = found(a=lost, b=lost, c=lost)
    assert [(finding.level, set(finding.hosts)) for finding in told] == [("could not tell", set(HOSTS))]


@pytest.mark.parametrize(("seconds", "causes"), [(0.2, []), (9.0, []), (31.0, ["link-slow"])])
def test_a_sum_that_takes_too_long_is_a_doubt_although_it_is_right(seconds, causes):
    slow = answer(rank("all_reduce of 20 MB", mb=20, right=True, seconds=seconds))
    told = found(a=slow, b=slow, c=slow)
    assert [(each.cause, each.level) for each in told] == [(cause, "could not tell") for cause in causes]


def test_a_slow_sum_over_an_overlay_is_only_a_warning():
    slow = answer(rank("all_reduce of 20 MB", mb=20, right=True, seconds=31.0))
    scene = dataclasses.replace(SCENE, interfaces=dict.fromkeys(HOSTS, "muster0a1b2c3d"))
    assert [(each.cause, each.level) for each in findings(dict.fromkeys(HOSTS, slow), scene)] == [
        ("link-slow", "warning")
    ]


def test_a_slow_engine_is_not_reported_as_broken():
    assert (
        found(b=Outcome({}, NoAnswer("ssh-slow", "b: `sh` sent nothing for 150 s", kind="slow")))[0].level
        == "could not tell"
    )


def test_without_torch_nothing_is_rehearsed_and_a_broken_torch_is_quoted():
    absent = Outcome({"phase": "alone", "torch": "", "error": "No module named torch"})
    broken = Outcome({"phase": "alone", "torch": "?", "error": "OSError: libcudart.so.12: cannot open shared object"})
    assert [(finding.cause, finding.level) for finding in found(b=absent)] == [("no-proof", "warning")]
    assert [finding.fix for finding in found(b=absent)] == ["name the Python that has your torch: --python PATH"]
    (inside,) = findings({"b": absent}, dataclasses.replace(SCENE, image="lab:1"))
    assert inside.fix.startswith(
        "on b: docker run --rm --entrypoint sh lab:1 -c 'command -v python python3; echo $PATH'"
    )
    told = found(b=broken)
    assert [(finding.hosts, finding.level) for finding in told] == [(("b",), "could not tell")]
    assert "libcudart" in told[0].text


@pytest.mark.parametrize(
    ("fabric", "line", "causes"),
    [
        (HOSTS, "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0", ["fabric-unused"]),
        ((), "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0", []),
        (HOSTS, "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA", []),
        (HOSTS, "Channel 00/0 : 0[0] -> 1[0] via P2P/IPC", []),
    ],
)
def test_sockets_despite_a_fabric_are_a_warning(fabric, line, causes):
    outcomes = {host: Outcome({"phase": "together", "torch": "2.13.0", "ranks": [
        {"local": 0, "step": "all_reduce", "right": True, "seconds": 0.1, "world": len(HOSTS), "nccl": [line]}]})
        for host in HOSTS}  # fmt: skip
    scene = Scene(list(HOSTS), "nccl", "10.0.0.1:29500", fabric=frozenset(fabric))
    found = findings(outcomes, scene)
    assert [(finding.cause, finding.level) for finding in found] == [(cause, "warning") for cause in causes]


def said_with_a_fabric(lines):
    """For each finding: cause, level, and whether it could tell.

    All hosts have a fabric, and NCCL logged these lines.
    """
    ranks = [{"local": 0, "step": "all_reduce", "right": True, "seconds": 0.1, "nccl": lines}]
    answers = {host: Outcome({"phase": "together", "torch": "2.13.0", "ranks": ranks}) for host in HOSTS}
    told = findings(answers, Scene(list(HOSTS), "nccl", "10.0.0.1:29500", fabric=frozenset(HOSTS)))
    return [(finding.cause, finding.level, "could not tell" not in finding.text) for finding in told]


@pytest.mark.parametrize("excerpt", public_logs.load(), ids=lambda excerpt: excerpt.name)
def test_with_a_fabric_a_public_log_that_shows_sockets_or_nothing_is_a_warning(excerpt):
    read = public_logs.said(excerpt.lines)
    if excerpt.truth.get("sockets") == "yes":
        assert said_with_a_fabric(excerpt.lines) == [("fabric-unused", "warning", True)]
    elif not (read["network"] or read["sockets"] or read["inside"]):
        assert said_with_a_fabric(excerpt.lines) == [("fabric-unused", "warning", False)]
    else:
        assert said_with_a_fabric(excerpt.lines) == []


def test_a_fabric_that_no_log_line_mentions_is_a_warning():
    assert said_with_a_fabric([]) == [("fabric-unused", "warning", False)]
