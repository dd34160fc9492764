"""What gpu-check decides without a GPU: findings, their table, and how it reads NCCL's and nvidia-smi's output."""

import json
import subprocess
import sys
import time

import pytest

from gpu_check import finding, schedule, turns
from gpu_check.__main__ import _report as report
from gpu_check.__main__ import main
from gpu_check.bench import Bench, output_of
from gpu_check.checks import ORDER, facts, hosts, mesh, module, orphans, precision, telemetry
from gpu_check.finding import MET, NOT_MET, NOT_TRIED, Done, Finding, judge, untried


def done(*findings):
    """A finished check with these findings."""
    return Done("hosts", "several hosts", 1.0, findings)


GOOD, BAD, LEFT = judge("sum", True, "6", "6"), judge("link", False, "never", "<= 36 s"), untried("NVML", "no GPU")


@pytest.mark.parametrize(
    ("findings", "code"), [((GOOD,), 0), ((GOOD, LEFT), 0), ((GOOD, BAD), 1), ((BAD, LEFT), 1), ((), 0)]
)
def test_only_an_expectation_that_was_not_met_makes_the_exit_code_1(findings, code):
    assert finding.exit_code([done(*findings)]) == code


def test_the_table_names_what_was_not_tried_and_why():
    lines = finding.table([done(GOOD, BAD, LEFT)]).splitlines()
    assert [line.split()[-1] for line in lines[1:]] == ["met", "met", "tried"]
    assert [line.split()[0] for line in lines[1:]] == ["hosts", "link", "NVML"]
    assert "NOT met" in lines[2]
    assert "no GPU" in lines[3]


def test_a_long_cell_goes_on_below_itself_and_no_line_is_cut():
    words = " ".join(f"word{number}" for number in range(60))
    text = finding.table([done(judge("long", True, words, words))])
    assert [word for word in words.split() if word not in text] == []
    assert max(map(len, text.splitlines())) < 140


def test_json_has_every_finding_with_its_values():
    output = finding.as_json([done(judge("rate", True, "3 GB/s", "", bus_gb_s=3.0), BAD)], {"cores": 2}, 4.0)
    assert json.loads(json.dumps(output))["counts"] == {MET: 1, NOT_MET: 1, NOT_TRIED: 0}
    assert output["checks"][0]["findings"][0]["values"] == {"bus_gb_s": 3.0}
    assert Finding(**output["checks"][0]["findings"][1]) == BAD


def test_the_report_is_printed_when_its_file_cannot_be_written(tmp_path, capsys):
    for place in ("nowhere/gpu-check.json", "."):
        assert not report([done(GOOD, BAD)], {"cores": 2}, 400.0, tmp_path / place), "a file there may be older"
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[-1] for line in lines[1:3]] == ["met", "met"]
        assert lines[-1].startswith("1 met, 1 NOT met")
        assert f"{tmp_path / place} cannot be written: " in lines[-1]
    assert report([done(GOOD)], {"cores": 2}, 4.0, tmp_path / "gpu-check.json")
    assert json.loads((tmp_path / "gpu-check.json").read_text())["counts"][MET] == 1


def test_every_check_has_a_title_and_a_time_limit():
    for name in ORDER:
        check = module(name)
        assert check.TITLE
        assert 0 < check.LIMIT_S < 480


@pytest.mark.parametrize(
    ("log", "used"),
    [
        ("gpu:7:7 [0] NCCL INFO Bootstrap: Using net0:10.77.0.1<0>", {"net0"}),
        ("gpu:7:7 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.5<0>", {"eth0"}),
        ("gpu:7:9 [0] NCCL INFO NET/Socket : Using [0]net0:10.77.0.1<0> [1]decoy0:10.78.0.1<0>", {"net0"}),
        ("gpu:7:9 [0] NCCL INFO NET/IB : No device found.", set()),
        ("gpu:7:9 [0] NCCL INFO Using network Socket", set()),
    ],
)
def test_the_interface_is_read_from_nccls_own_log(log, used):
    assert hosts.interfaces(log) >= used
    assert bool(hosts.interfaces(log)) == bool(used)


def test_a_second_interface_that_nccl_uses_is_seen():
    log = "x [0] NCCL INFO NET/Socket : Using [0]net0:10.77.0.1<0> [1]decoy0:10.78.0.1<0>"
    assert hosts.interfaces(log) == {"net0", "decoy0"}


@pytest.mark.parametrize(
    "words",
    [
        "NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 2000",
        "NCCL WARN Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1 to enable",
    ],
)
def test_nccls_refusal_of_a_shared_gpu_is_recognised_before_and_since_2_30(words):
    assert hosts.REFUSAL.search(words)


GPU = {"index": 0, "use_percent": 37, "memory_bytes": 1 << 30, "power_w": 310.5, "celsius": 41, "sm_mhz": 1980}
SMI = "37, 1024, 310.5, 41, 1980, 2619\n"


@pytest.mark.parametrize(
    ("gpu", "said", "state"),
    [
        ({**GPU, "memory_mhz": 2619}, SMI, MET),
        (GPU, SMI, NOT_MET),
        (GPU, "37, 1024, 310.5, 41, 1980, [N/A]\n", MET),  # a GB10 reports neither its memory nor that clock
        ({**GPU, "memory_mhz": 2619, "use_percent": 0}, SMI, NOT_MET),
        ({**GPU, "memory_mhz": 2619}, "", MET),
    ],
)
def test_telemetry_must_report_everything_that_nvidia_smi_reports(gpu, said, state):
    assert telemetry.compare({"gpus": [gpu]}, said).state == state


def test_a_gpu_that_telemetry_misses_is_not_met_and_the_reason_is_given():
    unseen = telemetry.compare({"gpu_unseen": "Driver/library version mismatch"}, SMI)
    assert (unseen.state, "mismatch" in unseen.measured) == (NOT_MET, True)
    assert telemetry.compare({}, "").state == NOT_MET


@pytest.mark.long
def test_a_driver_that_hangs_and_ignores_signals_blocks_nothing(tmp_path, monkeypatch):
    hangs, began = tmp_path / "python", time.monotonic()
    hangs.write_text("#!/bin/sh\nexec sleep 6\n")
    hangs.chmod(0o755)
    monkeypatch.setattr(subprocess.Popen, "kill", lambda _: None)  # like a process in state D, which no signal ends
    monkeypatch.setattr(sys, "executable", str(hangs))
    monkeypatch.setattr(schedule, "_LOOK_S", 0.2)
    with pytest.raises(subprocess.TimeoutExpired):
        schedule.Schedule(tmp_path, 9.0, print).read_facts()
    assert output_of([str(hangs)], seconds=0.2) is None
    assert time.monotonic() - began < 3


def test_processes_and_memory_left_on_a_gpu_are_named():
    before = {"pids": ["12"], "used_mib": [500, 3]}
    assert orphans.changes(before, {"pids": ["12"], "used_mib": [510, 3]}) == []
    assert orphans.changes(before, {"pids": ["12", "99"], "used_mib": [900, 3]}) == [
        "new processes 99",
        "GPU 0 holds 400 MiB more",
    ]
    assert orphans.changes({"pids": None, "used_mib": None}, before) == ["new processes 12"]


@pytest.mark.parametrize(
    ("version", "good"), [("2.8.0", True), ("2.13.0+cu130", True), ("2.7.1", False), ("3.0.0a0+git1", True)]
)
def test_torch_from_2_8_on_is_new_enough(version, good):
    assert (facts.release(version) >= facts.OLDEST_TORCH) == good


def test_a_ratio_is_too_low_only_if_most_turns_are_too_low():
    assert turns.clearly_below([0.8, 0.82, 0.81, 0.85], 0.95)
    assert not turns.clearly_below([0.8, 0.99, 1.0, 1.02], 0.95)


@pytest.mark.parametrize(
    ("losses", "far"), [({1: 4.0, 2: 2.0}, 0.0), ({1: 4.0, 2: 2.5}, 0.25), ({1: 4.0}, float("inf")), ({}, float("inf"))]
)
def test_losses_are_compared_step_by_step_and_none_may_be_missing(losses, far):
    assert mesh.largest_difference(losses, {1: 4.0, 2: 2.0}) == far
    assert mesh.largest_difference({}, {}) == float("inf")


def bench(tmp_path, gpus=0, nccl=None, compilers=(), triton=False, capability="9.0"):
    """A machine with this number of GPUs and these tools."""
    torch = {"gpus": [{"capability": capability}] * gpus, "nccl": nccl, "triton": triton}
    return Bench({"torch": torch, "compilers": list(compilers), "packages": {}}, tmp_path, print)


def test_a_node_sees_only_the_first_gpu_that_we_may_use(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert bench(tmp_path).one_gpu() == {}
    assert bench(tmp_path, 2).one_gpu()["CUDA_VISIBLE_DEVICES"] == "0"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    assert bench(tmp_path, 2).one_gpu()["CUDA_VISIBLE_DEVICES"] == "3"


@pytest.mark.parametrize(("nccl", "shares"), [([2, 29, 7], False), ([2, 30, 1], True), (None, False)])
def test_nccl_lets_ranks_share_a_gpu_from_2_30_on(tmp_path, nccl, shares):
    assert bench(tmp_path, 1, nccl).shares_gpu == shares


def test_torch_compile_needs_a_compiler_and_on_gpus_triton(tmp_path):
    assert precision.why_no_compiler(bench(tmp_path))
    assert not precision.why_no_compiler(bench(tmp_path, compilers=["g++"]))
    assert "triton" in precision.why_no_compiler(bench(tmp_path, 1, compilers=["g++", "gcc"]))
    assert not precision.why_no_compiler(bench(tmp_path, 1, compilers=["gcc"], triton=True))
    assert "6.1" not in (why := precision.why_no_compiler(bench(tmp_path, 1, None, ["gcc"], True, "6.1")))
    assert "7.0" in why, "a Pascal card is no fault of ours"


def test_an_unknown_check_is_refused_with_the_list_of_checks(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--only", "hots"])
    assert ended.value.code == 2
    assert "hots" in (output := capsys.readouterr().err)
    assert "hosts" in output
