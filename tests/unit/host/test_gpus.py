"""Who holds which GPU, from the output of nvidia-smi: never "free" or "no GPU" if that is uncertain."""

from pathlib import Path

import pytest

from deploy.host import gpus
from deploy.report import tables

ANSWERS = Path(__file__).with_name("nvidia_smi")


def answer(name):
    return gpus.parse((ANSWERS / f"{name}.txt").read_text().split("\n"))


def held_by(name):
    return [row[-1] for row in tables.gpu_rows({"a": answer(name)})]


def test_a_process_on_a_gpu_is_listed_with_its_user_container_and_run():
    busy, free = answer("held").gpus
    ours, other = busy.holders
    assert (ours.pid, ours.memory_mib, ours.user) == (4711, 61230, "alice")
    assert (ours.container, ours.run) == ("muster-2026-11-21-0311-train", "2026-11-21-0311-train")
    assert (other.user, other.process) == ("uid 10001", "python, with a comma")
    assert other.container == "9b1d3f5a7c9e", "a container this engine does not list is named by its short id"
    assert other.run == ""
    assert (busy.busy, busy.used_mib, busy.total_mib) == (97, 73411, 81559)
    assert free.holders == ()
    assert answer("held").fault == ""


def test_with_nested_engines_the_container_of_this_engine_is_named():
    inner, outer = "a" * 64, "b" * 64
    rows = ["gpu 0, GPU-1, 5000, 81559, 9, H100", "app GPU-1, 7, 4000, python", f"container {inner} muster-r r"]
    for cgroup in (
        f"4:cpu:/docker/{outer}/docker/{inner} 3:pids:/docker/{outer}",
        f"0::/docker/{outer}/docker/{inner}",
    ):
        (holder,) = gpus.parse([*rows, f"cgroup 7 {cgroup}"]).gpus[0].holders
        assert (holder.container, holder.run) == ("muster-r", "r")


def test_values_that_a_driver_does_not_report_are_unknown():
    (gpu,) = answer("shared").gpus
    assert gpu.busy is None
    (holder,) = gpu.holders
    assert (holder.pid, holder.memory_mib, holder.user, holder.container) == (2290, None, "carol", "")
    assert answer("shared").fault == ""


def test_a_gpu_in_use_by_an_unseen_process_is_not_free():
    assert held_by("unseen") == ["somebody who is not visible from here"]
    assert held_by("held")[-1] == "free"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mismatch", "code 18: Failed to initialize NVML: Driver/library version mismatch"),
        ("lost", "code 15: Unable to determine the device handle for GPU1"),
        ("hanging", "does not answer: the driver hangs, or its persistence mode is off"),
    ],
)
def test_a_driver_failure_is_reported_in_its_own_words(name, words):
    answered = answer(name)
    assert words in answered.fault
    assert any("could not tell" in cell for row in tables.gpu_rows({"a": answered}) for cell in row)
    assert "no GPU" not in tables.gpu_words(answered)


def test_the_gpus_that_still_answer_are_shown_with_the_error():
    assert [gpu.index for gpu in answer("lost").gpus] == [0]
    assert tables.gpu_words(answer("lost")).endswith("and one that fails")


@pytest.mark.parametrize(
    "cells",
    ["0, 97887, [GPU requires reset]", "[GPU is lost], [GPU is lost], [GPU is lost]", "[Unknown Error], 46068, 0"],
)
def test_a_gpu_that_is_listed_but_fails_is_an_error_and_not_free(cells):
    answered = gpus.parse(
        [f"gpu 0, GPU-1, {cells}, NVIDIA RTX PRO 6000", "gpu 1, GPU-2, 4, 97887, 0, NVIDIA RTX PRO 6000"]
    )
    assert [gpu.index for gpu in answered.gpus] == [1]
    assert cells in answered.fault


def test_a_gpu_with_unified_memory_can_be_known_to_be_free():
    assert held_by("unified") == ["free", "18.7 GiB  pid 114687  alice  /usr/local/bin/python"]


def test_a_gpu_without_an_inforom_is_no_error():
    assert answer("inforom").fault == ""
    assert held_by("inforom") == ["free"]


def test_an_answer_to_another_question_is_a_fault_and_no_gpu():
    answered = gpus.parse(["gpu No devices were found"])
    assert answered.gpus == ()
    assert "No devices were found" in answered.fault


def test_a_host_without_gpus_has_none():
    assert gpus.parse(["time 1", "node x"]) == gpus.Gpus()
    assert tables.gpu_words(gpus.Gpus()) == "no GPU"
    assert tables.gpu_rows({"a": gpus.Gpus()}) == [("a", "no GPU", "", "", "", "")]


def test_an_nvidia_device_without_nvidia_smi_is_an_error():
    answered = gpus.parse(["gpu-error an NVIDIA device is there, nvidia-smi is not"])
    assert tables.gpu_words(answered) == "could not tell: an NVIDIA device is there, nvidia-smi is not"


def test_whoever_was_given_a_gpu_is_shown_before_computing_on_it():
    assert held_by("claimed") == [
        "reserved for run r1 (carol)",
        "reserved for the deploy of train.py (alice@laptop)",
        "free",
    ]
