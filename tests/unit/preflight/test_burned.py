"""From what each GPU did under load to findings: wrong results are faults, a GPU behind its like is a warning."""

import json
from copy import deepcopy
from pathlib import Path

import pytest

from deploy.causes.finding import FAULT, UNKNOWN, WARNING, Finding
from deploy.core.errors import DeployError
from deploy.preflight import burned, probe_answers
from deploy.preflight.burned import Burned
from deploy.preflight.verdict import Verdict

# What an H200 answered in 24 s, in November 2026: at its power limit, and sound.
H200 = json.loads((Path(__file__).parent / "burn_h200.json").read_text())


def gpu(**more):
    """The H200's answer with other values, those of `watched` and `limits` among them."""
    made = deepcopy(H200)
    for name, value in more.items():
        place = next((part for part in (made["watched"], made["limits"]) if name in part), made)
        place[name] = value
    return made


def hosts(*gpus):
    """Hosts a, b, ... with one GPU each."""
    answers = {chr(ord("a") + place): {"gpus": [each], "torch": "2.11"} for place, each in enumerate(gpus)}
    return {host: Burned(probe_answers.read("burn", answer)) for host, answer in answers.items()}


def found(*gpus):
    """The findings of hosts with one GPU each: cause, level, hosts."""
    return [(finding.cause, finding.level, finding.hosts) for finding in burned.findings(hosts(*gpus))]


def test_a_sound_gpu_at_its_power_limit_is_no_finding_and_has_a_line():
    assert found(gpu(), gpu()) == []
    assert list(burned.lines(hosts(gpu()))) == [
        "a GPU 0 NVIDIA H200: 665 TFLOP/s (bfloat16), memory 4,223 GB/s, PCIe 55.1 and 55.0 GB/s, 58 °C, "
        "691 of 700 W, 132.1 GB of memory tried 34 times"
    ]


@pytest.mark.parametrize(
    ("wrong", "cause", "level"),
    [
        ({"wrong_words": 1}, "gpu-faulty", FAULT),
        ({"wrong_products": 2}, "gpu-faulty", FAULT),
        ({"uncorrected": 1.0}, "gpu-faulty", FAULT),
        ({"corrected": 7.0}, "gpu-faulty", WARNING),
        ({"wrong_peers": [3]}, "gpu-peers", FAULT),
        ({"error": "OutOfMemoryError: CUDA out of memory"}, "gpu-busy", FAULT),
        ({"error": "AcceleratorError: CUDA error: uncorrectable ECC error encountered"}, "gpu-faulty", FAULT),
        ({"signal": 9}, "gpu-faulty", UNKNOWN),
        ({"slowed": {"heat": 0.4, "power cap": 0.9}}, "gpu-slow", WARNING),
        ({"limit_watts": 500.0}, "gpu-slow", WARNING),
        ({"gen": 3.0}, "gpu-slow", WARNING),
        ({"last": 560.0}, "gpu-slow", WARNING),
        ({"memory": 3000.0}, "gpu-slow", WARNING),
        ({"to": 12.0}, "gpu-slow", WARNING),
        ({"nvlinks": 17}, "gpu-slow", WARNING),
    ],
)
def test_what_is_wrong_with_one_gpu_is_named_for_its_host_alone(wrong, cause, level):
    assert found(gpu(nvlinks=18), gpu(nvlinks=18) | gpu(**{"nvlinks": 18, **wrong})) == [(cause, level, ("b",))]


def test_gpus_of_another_kind_are_no_measure():
    assert found(gpu(), gpu(name="NVIDIA L4", last=60.0, memory=250.0)) == []


def test_a_pair_of_gpus_is_compared_with_the_same_pair_of_other_hosts():
    answers = {
        host: Burned({"gpus": [gpu(peers={"1": rate}), gpu(peers={"0": 380.0})]})
        for host, rate in (("a", 380.0), ("b", 21.0), ("c", 375.0))
    }
    (finding,) = burned.findings(answers)
    assert finding.text == "b: copies from GPU 0 to GPU 1 run at 21.0 GB/s, on hosts alike at 375"


def test_a_host_without_gpus_or_without_an_answer_is_named():
    outcomes = {"a": Burned({"gpus": []}), "b": Burned({}, DeployError("b: the connection was cut", "ssh b"))}
    assert [(finding.hosts, finding.level) for finding in burned.findings(outcomes)] == [
        (("a",), WARNING),
        (("b",), UNKNOWN),
    ]


def test_a_host_whose_gpus_could_not_even_be_looked_at_is_not_said_to_have_none():
    (finding,) = burned.findings({"a": Burned({"gpus": [], "signal": 11})})
    assert (finding.cause, finding.level) == ("gpu-faulty", UNKNOWN)
    assert "signal 11" in finding.text


@pytest.mark.parametrize("left_out", sorted(H200.keys() - {"name", "uuid", "to", "back"}))
def test_a_host_may_leave_out_what_it_will(left_out):
    answer = probe_answers.read("burn", {"gpus": [{key: H200[key] for key in H200 if key != left_out}]})
    burned.added(Verdict(()), {"a": Burned(answer), "b": Burned({"gpus": [H200]})}, {})


def test_a_verdict_gets_the_worst_of_a_burn_and_what_the_driver_wrote_meanwhile():
    before = Verdict((), {"gpus": "ok", "links": "ok"})
    line = "[1.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
    after = burned.added(before, hosts(gpu(gen=3.0)), {"a": ["usb 1-1: new device", line]})
    assert after.cause == "gpu-xid"
    assert "Xid 79" in after.first.text
    assert after.groups == {"gpus": FAULT, "links": "ok"}
    assert len(after.burned) == 1
    assert burned.added(before, hosts(gpu()), {}).groups["gpus"] == "ok"


def test_gpus_that_somebody_uses_are_not_burned():
    busy = Finding("gpu-busy", "gpus", ("a",), "a: GPU 0 has 20 GB of 80 GB in use", level=WARNING)
    assert burned.obstacle(Verdict((busy,)), True) == busy.text
    assert burned.obstacle(Verdict((Finding("disk-full", "resources", ("a",), "full"),)), True)
    assert burned.obstacle(Verdict(()), False)
    assert burned.obstacle(Verdict(()), True) == ""


@pytest.mark.parametrize("wrong", [{"peers": {"a": 1.0}}, {"to": -1.0}, {"kind": "; rm"}])
def test_an_answer_of_another_shape_is_refused(wrong):
    with pytest.raises(DeployError):
        probe_answers.read("burn", {"gpus": [{**H200, **wrong}]})
